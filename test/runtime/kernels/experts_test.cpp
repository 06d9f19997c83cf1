#include "test/runtime/kernels/harness.h"

#include <algorithm>
#include <numeric>

namespace espalier::rt {

namespace {

constexpr int64_t kBatch = 3, kSeq = 11, kExperts = 5, kChoices = 2, kCapacity = 4, kTokens = kBatch * kSeq;

int32_t idAt(const CallUnderTest &test, int buffer, int64_t index) {
  int32_t id;
  std::memcpy(&id, test.buffers[static_cast<size_t>(buffer)].data() + index * 4, 4);
  return id;
}

CallUnderTest makeRoute(pb::DataType type, bool withEqualScores = false) {
  CallUnderTest test(pb::LibraryCall::ROUTE, {kBatch, kSeq, kExperts, kChoices, kCapacity});
  test.add(type, kTokens * kExperts);
  for (int64_t i = 0; withEqualScores && i < kTokens * kExperts; ++i)
    setValue(test.buffers[0], type, i, i % 2 == 0 ? 1 : 0);
  test.add(pb::I32, kChoices * kTokens, 0);
  test.add(pb::I32, kChoices * kTokens, 0);
  return test;
}

TEST(Route, ChoosesTheBestExpertsOfEachToken) {
  forEachLevel([](const cpu::Loops &loops) {
    for (pb::DataType type : {pb::F32, pb::BF16, pb::F16})
      for (bool withEqualScores : {false, true}) {
        CallUnderTest test = makeRoute(type, withEqualScores);
        test.run(1, loops);
        for (int64_t token = 0; token < kTokens; ++token) {
          std::vector<int32_t> order(kExperts);
          std::iota(order.begin(), order.end(), 0);
          std::ranges::sort(order, {},
                            [&](int32_t expert) { return std::pair(-test.at(0, token * kExperts + expert), expert); });
          for (int64_t choice = 0; choice < kChoices; ++choice)
            ASSERT_EQ(idAt(test, 1, choice * kTokens + token), order[static_cast<size_t>(choice)]) << token;
        }
      }
  });
}

/// All tokens prefer the even experts or all prefer the odd experts. Most choices are therefore dropped.
TEST(Route, GivesSlotsToFirstChoicesInTheOrderOfTokens) {
  CallUnderTest test = makeRoute(pb::F32, /*withEqualScores=*/true);
  test.run(1);
  int64_t dropped = 0;
  for (int64_t sample = 0; sample < kBatch; ++sample) {
    std::vector<int32_t> taken(kExperts, 0);
    for (int64_t choice = 0; choice < kChoices; ++choice)
      for (int64_t position = 0; position < kSeq; ++position) {
        int64_t at = (choice * kBatch + sample) * kSeq + position;
        int32_t slot = taken[static_cast<size_t>(idAt(test, 1, at))]++;
        ASSERT_EQ(idAt(test, 2, at), slot < kCapacity ? slot : -1) << at;
        dropped += slot >= kCapacity;
      }
  }
  EXPECT_GT(dropped, 0);
}

/// Tokens that are not needed take no slot from the others.
TEST(Route, GivesSlotsToNeededTokensOnly) {
  CallUnderTest test = makeRoute(pb::F32, /*withEqualScores=*/true);
  test.firstRow = 1;
  test.endRow = kSeq + 1; // all of the first sample but its first token, and the first token of the second sample
  test.run(1);
  for (int64_t token = 0; token < kTokens; ++token) {
    bool isNeeded = token >= test.firstRow && token < test.endRow;
    bool hasRoom = token <= 2 * kCapacity || token >= kSeq; // even and odd tokens have different first choices
    EXPECT_EQ(idAt(test, 2, token) >= 0, isNeeded && hasRoom) << token;
    EXPECT_EQ(idAt(test, 2, kTokens + token) >= 0, isNeeded && hasRoom) << token;
  }
  EXPECT_EQ(idAt(test, 2, 1), 0);
  EXPECT_EQ(idAt(test, 2, 2), 0);
  EXPECT_EQ(idAt(test, 2, kSeq), 0);
}

/// Of three groups of two experts, a token keeps the two with the highest sums.
TEST(Route, TakesExpertsOfTheBestGroups) {
  CallUnderTest test(pb::LibraryCall::ROUTE, {1, 1, 6, 2, 1, 3, 2});
  test.add(pb::F32, 6);
  for (int64_t i = 0; float score : {3.0f, 2.0f, 4.0f, 0.0f, 2.0f, 3.0f})
    setValue(test.buffers[0], pb::F32, i++, score);
  test.add(pb::I32, 2, 0);
  test.add(pb::I32, 2, 0);
  test.run(1);
  EXPECT_EQ(idAt(test, 1, 0), 0);
  EXPECT_EQ(idAt(test, 1, 1), 5);
}

TEST(Route, SameBitsForAnyNumberOfThreads) {
  expectSameBitsForAnyThreads([] { return makeRoute(pb::BF16); });
}

/// Returns expert ids and slots as ROUTE computes them. Slot -1 means a dropped choice.
struct Places {
  std::vector<int32_t> ids, slots;

  Places() {
    CallUnderTest route = makeRoute(pb::F32);
    route.run(1);
    for (int64_t at = 0; at < kChoices * kTokens; ++at) {
      ids.push_back(idAt(route, 1, at));
      slots.push_back(idAt(route, 2, at));
    }
    slots[3] = -1;
  }
};

struct MoveCase {
  int64_t hidden;
  bool hasChoice, hasWeights;
};

const std::vector<MoveCase> kMoves = {{3, false, false}, {33, false, true}, {64, true, false}, {515, true, true}};

CallUnderTest makeMove(pb::LibraryCall::Function function, const MoveCase &c, pb::DataType from, pb::DataType to) {
  Places places;
  int64_t ofTokens = (c.hasChoice ? kChoices : 1) * kTokens * c.hidden;
  int64_t ofExperts = kExperts * kBatch * kCapacity * c.hidden;
  bool isDispatch = function == pb::LibraryCall::DISPATCH;
  CallUnderTest test(function, {kChoices, kBatch, kSeq, c.hidden, kExperts, kCapacity, c.hasChoice});
  test.addIds(places.ids);
  test.addIds(places.slots);
  test.add(from, isDispatch ? ofTokens : ofExperts);
  if (c.hasWeights)
    test.add(pb::F32, kChoices * kTokens);
  test.add(to, isDispatch ? ofExperts : ofTokens);
  return test;
}

/// Returns the expected result by the definition in SPEC.md: a sum over all choices of all tokens.
std::vector<double> expectedMove(const CallUnderTest &test, const MoveCase &c) {
  bool isDispatch = test.call.function() == pb::LibraryCall::DISPATCH;
  std::vector<double> expected(static_cast<size_t>(isDispatch ? kExperts * kBatch * kCapacity * c.hidden
                                                              : (c.hasChoice ? kChoices : 1) * kTokens * c.hidden));
  for (int64_t at = 0; at < kChoices * kTokens; ++at) {
    int64_t slot = idAt(test, 1, at), sample = at / kSeq % kBatch;
    if (slot < 0)
      continue;
    int64_t row = (idAt(test, 0, at) * kBatch + sample) * kCapacity + slot, token = c.hasChoice ? at : at % kTokens;
    for (int64_t h = 0; h < c.hidden; ++h) {
      int64_t from = (isDispatch ? token : row) * c.hidden + h, to = (isDispatch ? row : token) * c.hidden + h;
      expected[static_cast<size_t>(to)] += test.at(2, from) * (c.hasWeights ? test.at(3, at) : 1);
    }
  }
  return expected;
}

TEST(Experts, DispatchAndCombineMoveRows) {
  forEachLevel([](const cpu::Loops &loops) {
    for (auto function : {pb::LibraryCall::DISPATCH, pb::LibraryCall::COMBINE})
      for (const MoveCase &c : kMoves)
        for (auto [from, to] :
             {std::pair(pb::F32, pb::F32), {pb::BF16, pb::BF16}, {pb::BF16, pb::F32}, {pb::F16, pb::F16}}) {
          CallUnderTest test = makeMove(function, c, from, to);
          std::vector<double> expected = expectedMove(test, c);
          test.run(1, loops);
          int result = static_cast<int>(test.buffers.size()) - 1;
          for (size_t i = 0; i < expected.size(); ++i)
            ASSERT_NEAR(test.at(result, static_cast<int64_t>(i)), expected[i],
                        2 * roundoff(to) * std::abs(expected[i]) + 1e-6)
                << i;
        }
  });
}

TEST(Experts, MovesHaveTheSameBitsForAnyNumberOfThreads) {
  for (auto function : {pb::LibraryCall::DISPATCH, pb::LibraryCall::COMBINE})
    expectSameBitsForAnyThreads([&] { return makeMove(function, {515, false, true}, pb::BF16, pb::BF16); });
}

/// Ids and slots out of range, as in a damaged plan, must not cause writes.
TEST(Experts, IgnoresIdsAndSlotsOutOfRange) {
  CallUnderTest test = makeMove(pb::LibraryCall::DISPATCH, {3, false, false}, pb::F32, pb::F32);
  for (int64_t at = 0; at < kChoices * kTokens; ++at) {
    int32_t outside = at % 2 ? 2000000000 : -7;
    std::memcpy(test.buffers[static_cast<size_t>(at % 3 == 0)].data() + at * 4, &outside, 4);
  }
  test.run(1);
  for (int64_t i = 0; i < kExperts * kBatch * kCapacity * 3; ++i)
    ASSERT_EQ(test.at(3, i), 0);
}

} // namespace

} // namespace espalier::rt
