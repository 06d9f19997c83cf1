// Copies, zeros and the two reductions.
#include "test/runtime/kernels/harness.h"

namespace espalier::rt {

namespace {

TEST(Copy, MovesStridedBlocksAndNothingBetweenThem) {
  struct Case {
    int64_t outer, fromStride, toStride, bytes;
  };
  for (Case c : {Case{5, 12, 20, 12}, Case{1, 0, 0, 300001}, Case{3, 400000, 300004, 300004}, Case{9, 0, 8, 8},
                 Case{0, 4, 4, 4}}) {
    CallUnderTest test(pb::LibraryCall::COPY, {c.outer, c.fromStride, c.toStride, c.bytes});
    test.add(pb::F32, (c.outer * c.fromStride + c.bytes + 3) / 4);
    test.add(pb::F32, (c.outer * c.toStride + c.bytes + 3) / 4);
    std::vector<char> expected = test.buffers[1];
    for (int64_t block = 0; block < c.outer; ++block)
      std::memcpy(expected.data() + block * c.toStride, test.buffers[0].data() + block * c.fromStride,
                  static_cast<size_t>(c.bytes));
    test.run(2);
    EXPECT_EQ(test.buffers[1], expected) << c.bytes;
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

CallUnderTest makeNorm(int64_t elements) {
  CallUnderTest test(pb::LibraryCall::SQUARED_NORM, {elements}, {0.25});
  test.add(pb::F32, elements);
  test.add(pb::F32, 1);
  return test;
}

TEST(SquaredNorm, AddsTheWeightedSum) {
  forEachLevel([](const cpu::Loops &loops) {
    for (int64_t elements : {0, 1, 7, 33, 200003}) {
      CallUnderTest test = makeNorm(elements);
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
}

CallUnderTest makeReduce(int64_t parts, int64_t elements, bool accumulate) {
  CallUnderTest test(pb::LibraryCall::REDUCE_PARTS, {parts, elements});
  test.accumulate = accumulate;
  test.add(pb::F32, parts * elements);
  test.add(pb::F32, elements);
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

} // namespace

} // namespace espalier::rt
