// Tests copies, zeros, the two reductions and the scalars of a step.
#include "runtime/kernels/update_scalars.h"
#include "test/runtime/kernels/harness.h"

#include <limits>

namespace espalier::rt {

namespace {

TEST(Copy, MovesStridedBlocksToDenseOnes) {
  struct Case {
    int64_t outer, stride, bytes;
  };
  for (Case c : {Case{5, 20, 12}, Case{1, 0, 300001}, Case{3, 400000, 300004}, Case{9, 0, 8}, Case{4, 4, 12},
                 Case{0, 4, 4}, Case{3, 8, 0}}) {
    CallUnderTest test(pb::LibraryCall::COPY, {c.outer, c.stride, c.bytes});
    test.add(pb::F32, (c.outer * c.stride + c.bytes + 3) / 4);
    test.add(pb::F32, (c.outer * c.bytes + 3) / 4);
    std::vector<char> expected = test.buffers[1];
    for (int64_t block = 0; block < c.outer; ++block)
      std::memcpy(expected.data() + block * c.bytes, test.buffers[0].data() + block * c.stride,
                  static_cast<size_t>(c.bytes));
    test.run(2);
    EXPECT_EQ(test.buffers[1], expected) << c.bytes;
  }
}

// Example: [2, 3] of blocks 0 1 2 | 3 4 5 becomes [3, 2]: 0 3 | 1 4 | 2 5.
TEST(Rearrange, SwapsTheOuterDimensions) {
  for (auto [a, b, bytes] : {std::tuple<int64_t, int64_t, int64_t>{2, 3, 4},
                             {7, 5, 12},
                             {3, 2, 300004},
                             {1, 9, 8},
                             {4, 1, 6},
                             {0, 3, 4},
                             {2, 2, 0}}) {
    CallUnderTest test(pb::LibraryCall::REARRANGE, {a, b, bytes});
    test.add(pb::F32, (a * b * bytes + 3) / 4);
    test.add(pb::F32, (a * b * bytes + 3) / 4);
    std::vector<char> expected = test.buffers[1];
    for (int64_t i = 0; i < a; ++i)
      for (int64_t j = 0; j < b; ++j)
        std::memcpy(expected.data() + (j * a + i) * bytes, test.buffers[0].data() + (i * b + j) * bytes,
                    static_cast<size_t>(bytes));
    test.run(2);
    EXPECT_EQ(test.buffers[1], expected) << a << " " << b << " " << bytes;
  }
}

// Parts of 2 ranks with 2 samples of 2 chunks each: 0 3 | 0 3 and 1 2 | 1 2 become 0 1 2 3 | 0 1 2 3, and back.
TEST(Rearrange, KeepsTheZigzagOrder) {
  for (auto [parts, samples, bytes] :
       {std::tuple<int64_t, int64_t, int64_t>{2, 2, 8}, {4, 3, 16}, {3, 1, 600008}, {1, 2, 8}}) {
    CallUnderTest gathered(pb::LibraryCall::REARRANGE, {parts, samples, bytes, 1});
    gathered.add(pb::F32, parts * samples * bytes / 4);
    gathered.add(pb::F32, parts * samples * bytes / 4);
    std::vector<char> expected = gathered.buffers[1];
    int64_t chunk = bytes / 2;
    for (int64_t part = 0; part < parts; ++part)
      for (int64_t sample = 0; sample < samples; ++sample)
        for (int64_t half : {0, 1}) {
          int64_t place = half == 0 ? part : 2 * parts - 1 - part;
          std::memcpy(expected.data() + (sample * 2 * parts + place) * chunk,
                      gathered.buffers[0].data() + ((part * samples + sample) * 2 + half) * chunk,
                      static_cast<size_t>(chunk));
        }
    gathered.run(2);
    EXPECT_EQ(gathered.buffers[1], expected) << parts << " " << samples << " " << bytes;
    CallUnderTest scattered(pb::LibraryCall::REARRANGE, {samples, parts, bytes, 2});
    scattered.add(pb::F32, parts * samples * bytes / 4);
    scattered.add(pb::F32, parts * samples * bytes / 4);
    scattered.buffers[0] = gathered.buffers[1];
    scattered.run(2);
    EXPECT_EQ(scattered.buffers[1], gathered.buffers[0]) << parts << " " << samples << " " << bytes;
  }
}

TEST(Zero, ClearsExactlyItsBytes) {
  CallUnderTest test(pb::LibraryCall::ZERO, {600001});
  test.add(pb::F32, 150010);
  std::vector<char> expected = test.buffers[0];
  std::memset(expected.data(), 0, 600001);
  test.run(3);
  EXPECT_EQ(test.buffers[0], expected);
}

CallUnderTest makeNorm(int64_t elements, pb::DataType type = pb::F32) {
  CallUnderTest test(pb::LibraryCall::SQUARED_NORM, {elements}, {0.25});
  test.add(type, elements);
  test.add(pb::F32, 1);
  return test;
}

TEST(SquaredNorm, AddsTheWeightedSum) {
  forEachLevel([](const cpu::Loops &loops) {
    for (pb::DataType type : {pb::F32, pb::BF16, pb::F16})
      for (int64_t elements : {0, 1, 7, 33, 200003}) {
        CallUnderTest test = makeNorm(elements, type);
        double expected = test.at(1, 0);
        for (int64_t i = 0; i < elements; ++i)
          expected += 0.25 * test.at(0, i) * test.at(0, i);
        test.run(1, loops);
        EXPECT_NEAR(test.at(1, 0), expected, std::abs(expected) * 3e-7) << elements;
      }
  });
}

TEST(SquaredNorm, InfinitiesAndNansReachTheSum) {
  for (float bad : {INFINITY, -INFINITY, NAN, 3e38f})
    for (int64_t index : {0, 99999}) {
      CallUnderTest test = makeNorm(100000);
      setValue(test.buffers[0], pb::F32, index, bad);
      test.run(1);
      EXPECT_FALSE(std::isfinite(test.at(1, 0))) << bad;
    }
}

TEST(SquaredNorm, SameBitsForAnyNumberOfThreads) {
  expectSameBitsForAnyThreads([] { return makeNorm(500007); });
  expectSameBitsForAnyThreads([] { return makeNorm(500007, pb::BF16); });
}

CallUnderTest makeReduce(int64_t parts, int64_t elements, bool accumulate, pb::DataType out = pb::F32) {
  CallUnderTest test(pb::LibraryCall::REDUCE_PARTS, {parts, elements});
  test.adds = accumulate;
  test.add(pb::F32, parts * elements);
  test.add(out, elements);
  return test;
}

TEST(ReduceParts, SumsInOrder) {
  forEachLevel([](const cpu::Loops &loops) {
    for (bool accumulate : {false, true})
      for (int64_t parts : {0, 1, 5}) {
        CallUnderTest test = makeReduce(parts, 5003, accumulate), before = test;
        test.run(2, loops);
        for (int64_t i = 0; i < 5003; ++i) {
          float expected = accumulate ? static_cast<float>(before.at(1, i)) : 0;
          for (int64_t part = 0; part < parts; ++part)
            expected += static_cast<float>(before.at(0, part * 5003 + i));
          ASSERT_EQ(static_cast<float>(test.at(1, i)), expected) << i;
        }
      }
  });
}

TEST(ReduceParts, RoundsASumOnce) {
  forEachLevel([](const cpu::Loops &loops) {
    for (pb::DataType type : {pb::BF16, pb::F16})
      for (bool accumulate : {false, true}) {
        CallUnderTest test = makeReduce(5, 5003, accumulate, type), before = test;
        test.run(2, loops);
        for (int64_t i = 0; i < 5003; ++i) {
          double expected = accumulate ? before.at(1, i) : 0;
          for (int64_t part = 0; part < 5; ++part)
            expected += before.at(0, part * 5003 + i);
          ASSERT_NEAR(test.at(1, i), expected, std::abs(expected) * roundoff(type) + 1e-6) << i;
        }
      }
  });
}

/// The inputs are loss sum, token count, squared norm and loss scale. The outputs start with a wrong value.
CallUnderTest makeUpdate(double maxGradNorm, std::array<float, 4> sums) {
  CallUnderTest test(pb::LibraryCall::UPDATE_SCALARS, {}, {maxGradNorm});
  for (int slot = 0; slot < 6; ++slot) {
    test.add(pb::F32, 1);
    setValue(test.buffers.back(), pb::F32, 0, slot < 4 ? sums[static_cast<size_t>(slot)] : 77.0f);
  }
  return test;
}

// A raw norm of 120 over 10 tokens at loss scale 4 gives a normalised norm of 3.
TEST(UpdateScalars, ClipsTheNormalisedGradient) {
  struct Case {
    double limit, scale;
  };
  for (Case c : {Case{0, 1.0 / 40}, Case{5, 1.0 / 40}, Case{1.5, 1.5 / (3 + 1e-6) / 40}}) {
    CallUnderTest test = makeUpdate(c.limit, {7, 10, 14400, 4});
    test.run(1);
    EXPECT_EQ(static_cast<float>(test.at(4, 0)), static_cast<float>(c.scale)) << c.limit;
    EXPECT_EQ(test.at(5, 0), 1);
  }
  EXPECT_EQ(normalisedNorm(10, 14400, 4), 3);
}

TEST(UpdateScalars, SkipsOverflowsAndBatchesWithoutTokens) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (std::array<float, 4> sums : {std::array<float, 4>{infinity, 10, 1, 1},
                                    {NAN, 10, 1, 1},
                                    {1, 0, 1, 1},
                                    {1, NAN, 1, 1},
                                    {1, 10, infinity, 1},
                                    {1, 10, NAN, 1}}) {
    CallUnderTest test = makeUpdate(1, sums);
    test.run(1);
    EXPECT_EQ(test.at(4, 0), 0);
    EXPECT_EQ(test.at(5, 0), 0);
  }
}

} // namespace

} // namespace espalier::rt
