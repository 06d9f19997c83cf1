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

/// Experts of a holder share slots: the rows of a sample in a holder are sorted by expert.
TEST(Route, HoldersShareSlots) {
  constexpr int64_t experts = 6, each = 3, holders = 2, capacity = 14;
  CallUnderTest test(pb::LibraryCall::ROUTE, {kBatch, kSeq, experts, kChoices, capacity, 1, 1, each, holders});
  test.add(pb::F32, kTokens * experts);
  test.add(pb::I32, kChoices * kTokens, 0);
  test.add(pb::I32, kChoices * kTokens, 0);
  test.add(pb::I32, holders * kBatch * capacity, 0);
  test.run(1);
  int64_t rows = 0;
  for (int64_t at = 0; at < kChoices * kTokens; ++at)
    if (int32_t slot = idAt(test, 2, at); slot >= 0) {
      int64_t sample = at / kSeq % kBatch, expert = idAt(test, 1, at);
      ASSERT_EQ(idAt(test, 3, (expert / each * kBatch + sample) * capacity + slot), expert % each);
      ++rows;
    }
  int64_t owned = 0;
  for (int64_t block = 0; block < holders * kBatch; ++block)
    for (int64_t slot = 0; slot < capacity; ++slot) {
      int32_t owner = idAt(test, 3, block * capacity + slot);
      owned += owner >= 0;
      if (slot > 0)
        ASSERT_LE(static_cast<uint32_t>(idAt(test, 3, block * capacity + slot - 1)), static_cast<uint32_t>(owner));
    }
  EXPECT_EQ(rows, owned) << "a slot has one choice";
  EXPECT_GT(rows, kTokens);
}

/// Rows of two samples of two holders with three experts each. Owners ascend; an expert is empty, another has all rows
/// of a sample.
struct GroupedCase {
  int64_t capacity = 70, k = 40, n = 72;
  std::vector<int32_t> owners;

  GroupedCase() {
    for (int block = 0; block < 4; ++block)
      for (int64_t slot = 0; slot < capacity; ++slot)
        owners.push_back(block == 1 ? 1 : slot >= 60 ? -1 : slot < 3 ? 0 : slot < 37 + block ? 1 : block == 0 ? 1 : 2);
  }
  int64_t rows() const { return 4 * capacity; }
  int64_t expertOf(int64_t row) const {
    int32_t owner = owners[static_cast<size_t>(row)];
    return owner < 0 ? -1 : row / (2 * capacity) * 3 + owner;
  }
  CallUnderTest make(pb::LibraryCall::Function function, pb::DataType type, pb::DataType result) const {
    CallUnderTest test(function, {2, 2, capacity, 6, k, n});
    bool isGradient = function == pb::LibraryCall::GROUPED_GRADIENT;
    bool isTransposed = function == pb::LibraryCall::GROUPED_TRANSPOSED;
    test.add(type, rows() * (isTransposed ? n : k));
    test.add(type, isGradient ? rows() * n : 6 * k * n);
    test.addIds(owners);
    test.add(result, isGradient ? 6 * k * n : rows() * (isTransposed ? k : n));
    return test;
  }
  std::vector<double> expected(const CallUnderTest &test) const {
    auto function = test.call.function();
    bool isGradient = function == pb::LibraryCall::GROUPED_GRADIENT;
    bool isTransposed = function == pb::LibraryCall::GROUPED_TRANSPOSED;
    std::vector<double> sums(static_cast<size_t>(isGradient ? 6 * k * n : rows() * (isTransposed ? k : n)));
    for (int64_t row = 0; row < rows(); ++row)
      for (int64_t i = 0; expertOf(row) >= 0 && i < k; ++i)
        for (int64_t o = 0; o < n; ++o) {
          int64_t weight = (expertOf(row) * k + i) * n + o;
          if (isGradient)
            sums[static_cast<size_t>(weight)] += test.at(0, row * k + i) * test.at(1, row * n + o);
          else if (isTransposed)
            sums[static_cast<size_t>(row * k + i)] += test.at(0, row * n + o) * test.at(1, weight);
          else
            sums[static_cast<size_t>(row * n + o)] += test.at(0, row * k + i) * test.at(1, weight);
        }
    return sums;
  }
};

const std::vector<pb::LibraryCall::Function> kGrouped = {pb::LibraryCall::GROUPED, pb::LibraryCall::GROUPED_TRANSPOSED,
                                                         pb::LibraryCall::GROUPED_GRADIENT};

TEST(Grouped, MultipliesRowsByTheMatricesOfTheirExperts) {
  GroupedCase c;
  forEachLevel([&](const cpu::Loops &loops) {
    for (auto function : kGrouped)
      for (auto [type, result] : {std::pair(pb::F32, pb::F32), {pb::BF16, pb::BF16}, {pb::BF16, pb::F32}}) {
        CallUnderTest test = c.make(function, type, result);
        std::vector<double> expected = c.expected(test);
        test.run(3, loops);
        for (size_t i = 0; i < expected.size(); ++i)
          ASSERT_NEAR(test.at(3, static_cast<int64_t>(i)), expected[i],
                      2 * roundoff(result) * std::abs(expected[i]) + 1e-4)
              << pb::LibraryCall::Function_Name(function) << " " << i;
      }
  });
}

TEST(Grouped, GradientsAdd) {
  GroupedCase c;
  CallUnderTest test = c.make(pb::LibraryCall::GROUPED_GRADIENT, pb::F32, pb::F32);
  std::vector<double> expected = c.expected(test);
  for (size_t i = 0; i < expected.size(); ++i)
    expected[i] += test.at(3, static_cast<int64_t>(i));
  test.adds = true;
  test.run(1);
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(test.at(3, static_cast<int64_t>(i)), expected[i], 1e-4) << i;
}

TEST(Grouped, SameBitsForAnyNumberOfThreads) {
  for (auto function : kGrouped)
    expectSameBitsForAnyThreads([&] { return GroupedCase().make(function, pb::BF16, pb::F32); });
}

/// Owners out of range or order, as in a damaged plan, must not cause accesses outside of the buffers.
TEST(Grouped, WrongOwnersStayInTheBuffers) {
  GroupedCase c;
  std::mt19937 random(3);
  for (int32_t &owner : c.owners)
    owner = static_cast<int32_t>(random());
  for (auto function : kGrouped)
    c.make(function, pb::F32, pb::F32).run(2);
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
