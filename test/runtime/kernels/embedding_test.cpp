#include "test/runtime/kernels/harness.h"

namespace espalier::rt {

namespace {

// This rank holds rows 10 to 160. Ids outside of this range belong to other ranks.
const std::vector<int32_t> kIds = {10, 160, 9, 161, 12, 12, 0, 15, 12, 2000000000, -1, 143, 13, 143};
constexpr int64_t kRows = 151, kFirst = 10;

CallUnderTest makeEmbed(pb::DataType table, pb::DataType out, int64_t hidden) {
  int64_t tokens = static_cast<int64_t>(kIds.size());
  CallUnderTest test(pb::LibraryCall::EMBED, {tokens, kRows, hidden});
  test.setScalars({kFirst});
  test.add(table, kRows * hidden);
  test.addIds(kIds);
  test.add(out, tokens * hidden);
  return test;
}

TEST(Embed, CopiesRowsAndGivesZerosOutside) {
  forEachLevel([](const cpu::Loops &loops) {
    for (pb::DataType table : {pb::F32, pb::BF16, pb::F16})
      for (pb::DataType out : {pb::F32, pb::BF16, pb::F16})
        for (int64_t hidden : {3, 33, 64}) {
          CallUnderTest test = makeEmbed(table, out, hidden);
          test.run(1, loops);
          for (size_t token = 0; token < kIds.size(); ++token)
            for (int64_t i = 0; i < hidden; ++i) {
              int64_t row = kIds[token] - kFirst;
              double expected = row >= 0 && row < kRows ? test.at(0, row * hidden + i) : 0;
              ASSERT_NEAR(test.at(2, static_cast<int64_t>(token) * hidden + i), expected,
                          std::abs(expected) * roundoff(out))
                  << "token " << token;
            }
        }
  });
}

CallUnderTest makeEmbedGradient(pb::DataType type, int64_t hidden, bool accumulate, pb::DataType table = pb::F32) {
  int64_t tokens = static_cast<int64_t>(kIds.size());
  CallUnderTest test(pb::LibraryCall::EMBED_GRADIENT, {tokens, kRows, hidden});
  test.setScalars({kFirst});
  test.adds = accumulate;
  test.addIds(kIds);
  test.add(type, tokens * hidden);
  test.add(table, kRows * hidden);
  return test;
}

TEST(EmbedGradient, AddsEachTokenToItsRow) {
  forEachLevel([](const cpu::Loops &loops) {
    for (pb::DataType type : {pb::F32, pb::BF16, pb::F16})
      for (bool accumulate : {false, true})
        for (int64_t hidden : {3, 33, 200}) {
          CallUnderTest test = makeEmbedGradient(type, hidden, accumulate), before = test;
          test.run(1, loops);
          for (int64_t i = 0; i < kRows * hidden; ++i) {
            double expected = accumulate ? before.at(2, i) : 0;
            for (size_t token = 0; token < kIds.size(); ++token)
              if (kIds[token] - kFirst == i / hidden)
                expected += test.at(1, static_cast<int64_t>(token) * hidden + i % hidden);
            ASSERT_NEAR(test.at(2, i), expected, 1e-6) << i;
          }
        }
  });
}

TEST(EmbedGradient, RoundsARowOnce) {
  forEachLevel([](const cpu::Loops &loops) {
    for (pb::DataType type : {pb::BF16, pb::F16})
      for (bool accumulate : {false, true}) {
        constexpr int64_t hidden = 33;
        CallUnderTest test = makeEmbedGradient(type, hidden, accumulate, type), before = test;
        test.run(1, loops);
        for (int64_t i = 0; i < kRows * hidden; ++i) {
          double expected = accumulate ? before.at(2, i) : 0;
          for (size_t token = 0; token < kIds.size(); ++token)
            if (kIds[token] - kFirst == i / hidden)
              expected += test.at(1, static_cast<int64_t>(token) * hidden + i % hidden);
          ASSERT_NEAR(test.at(2, i), expected, std::abs(expected) * roundoff(type) + 1e-6) << i;
        }
      }
  });
}

TEST(EmbedGradient, SameBitsForAnyNumberOfThreads) {
  expectSameBitsForAnyThreads([] { return makeEmbedGradient(pb::BF16, 200, true, pb::BF16); });
  expectSameBitsForAnyThreads([] { return makeEmbedGradient(pb::BF16, 200, false); });
  expectSameBitsForAnyThreads([] { return makeEmbedGradient(pb::F32, 129, true); });
}

const std::vector<int32_t> kPositions = {0, 1, 2, 511, 131071, 77, 3};

CallUnderTest makeRope(pb::DataType type, int64_t heads, int64_t headDim, bool inverse) {
  int64_t tokens = static_cast<int64_t>(kPositions.size());
  CallUnderTest test(pb::LibraryCall::ROPE, {tokens, heads, headDim, inverse}, {10000});
  test.add(type, tokens * heads * headDim);
  test.addIds(kPositions);
  test.add(type, tokens * heads * headDim);
  return test;
}

TEST(Rope, RotatesPairsOfHalves) {
  forEachLevel([](const cpu::Loops &loops) {
    for (pb::DataType type : {pb::F32, pb::BF16, pb::F16})
      for (int64_t headDim : {2, 6, 64, 66})
        for (bool inverse : {false, true}) {
          CallUnderTest test = makeRope(type, 3, headDim, inverse);
          test.run(1, loops);
          int64_t half = headDim / 2;
          for (int64_t i = 0; i < static_cast<int64_t>(kPositions.size()) * 3 * half; ++i) {
            int64_t head = i / half, pair = i % half;
            double angle = kPositions[static_cast<size_t>(head / 3)] *
                           std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(headDim));
            double sine = inverse ? -std::sin(angle) : std::sin(angle), cosine = std::cos(angle);
            double low = test.at(0, head * headDim + pair), high = test.at(0, head * headDim + half + pair);
            double size = std::abs(low) + std::abs(high), bound = size * (4e-7 + roundoff(type));
            ASSERT_NEAR(test.at(2, head * headDim + pair), low * cosine - high * sine, bound) << angle;
            ASSERT_NEAR(test.at(2, head * headDim + half + pair), high * cosine + low * sine, bound) << angle;
          }
        }
  });
}

/// A part of each head is rotated, in either order of pairs, with scaled frequencies; the rest is copied.
TEST(Rope, RotatesAPartOfAHeadWithScaledFrequencies) {
  struct Scaling {
    double slow, fast, context;
  };
  constexpr int64_t heads = 3, headDim = 70, rotary = 38;
  constexpr double factor = 4, amplitude = 1.25;
  for (Scaling scaling : {Scaling{0, 0, 0}, {1, 4, 3000}, {14, 3, 0}})
    for (bool isInterleaved : {false, true})
      forEachLevel([&](const cpu::Loops &loops) {
        CallUnderTest test(pb::LibraryCall::ROPE,
                           {static_cast<int64_t>(kPositions.size()), heads, headDim, 0, rotary, isInterleaved},
                           {10000, factor, scaling.slow, scaling.fast, scaling.context, amplitude});
        int64_t elements = static_cast<int64_t>(kPositions.size()) * heads * headDim;
        test.add(pb::F32, elements);
        test.addIds(kPositions);
        test.add(pb::F32, elements);
        test.run(1, loops);
        for (int64_t head = 0; head < elements / headDim; ++head) {
          for (int64_t pair = 0; pair < rotary / 2; ++pair) {
            double plain = std::pow(10000.0, -2.0 * static_cast<double>(pair) / rotary);
            double at = scaling.context > 0 ? scaling.context * plain / (2 * M_PI) : static_cast<double>(pair);
            bool hasRange = scaling.slow != scaling.fast;
            double kept = hasRange ? std::clamp((at - scaling.slow) / (scaling.fast - scaling.slow), 0.0, 1.0) : 0.0;
            double angle = kPositions[static_cast<size_t>(head / heads)] * plain * ((1 - kept) / factor + kept);
            int64_t first = head * headDim + (isInterleaved ? 2 * pair : pair);
            int64_t second = isInterleaved ? first + 1 : first + rotary / 2;
            double low = test.at(0, first), high = test.at(0, second), bound = 1e-6 * (std::abs(low) + std::abs(high));
            ASSERT_NEAR(test.at(2, first), amplitude * (low * std::cos(angle) - high * std::sin(angle)), bound);
            ASSERT_NEAR(test.at(2, second), amplitude * (high * std::cos(angle) + low * std::sin(angle)), bound);
          }
          for (int64_t i = head * headDim + rotary; i < (head + 1) * headDim; ++i)
            ASSERT_EQ(test.at(2, i), test.at(0, i));
        }
      });
}

TEST(Rope, InverseUndoesItInPlace) {
  CallUnderTest there = makeRope(pb::F32, 2, 10, false), back = makeRope(pb::F32, 2, 10, true);
  there.run(1);
  back.buffers[0] = there.buffers[2];
  back.run(1);
  for (int64_t i = 0; i < static_cast<int64_t>(kPositions.size()) * 20; ++i)
    ASSERT_NEAR(back.at(2, i), there.at(0, i), 2e-6);
}

} // namespace

} // namespace espalier::rt
