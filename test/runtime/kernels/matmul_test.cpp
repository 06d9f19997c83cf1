#include "test/runtime/kernels/harness.h"

namespace espalier::rt {

namespace {

struct Product {
  int64_t m, n, k, batch = 1;
  bool transposeA = false, transposeB = false, accumulate = false;
  pb::DataType a = pb::F32, b = pb::F32, c = pb::F32;
  bool hasBias = false;
};

CallUnderTest makeCall(const Product &p) {
  CallUnderTest test(pb::LibraryCall::MATMUL, {p.m, p.n, p.k, p.batch});
  test.call.set_transpose_a(p.transposeA);
  test.call.set_transpose_b(p.transposeB);
  test.adds = p.accumulate;
  test.add(p.a, p.batch * p.m * p.k);
  test.add(p.b, p.batch * p.k * p.n);
  test.add(p.c, p.batch * p.m * p.n);
  if (p.hasBias) {
    test.call.set_epilogue(pb::LibraryCall::BIAS);
    test.add(p.c, p.n);
  }
  return test;
}

/// Compares every element with the product in double precision. The bound is that of a sum of k rounded f32 products in
/// any order, plus the rounding of c.
void expectProduct(const Product &p, const cpu::Loops &loops, int threads = 1) {
  SCOPED_TRACE(testing::Message() << p.m << "x" << p.n << "x" << p.k << " batch " << p.batch << " transposed "
                                  << p.transposeA << p.transposeB << " types " << p.a << p.b << p.c);
  CallUnderTest test = makeCall(p);
  CallUnderTest before = test;
  test.run(threads, loops);
  for (int64_t i = 0; i < p.batch * p.m * p.n; ++i) {
    int64_t matrix = i / (p.m * p.n), row = i / p.n % p.m, column = i % p.n;
    double sum = p.accumulate ? before.at(2, i) : p.hasBias ? before.at(3, column) : 0, magnitude = std::abs(sum);
    for (int64_t k = 0; k < p.k; ++k) {
      double left = before.at(0, matrix * p.m * p.k + (p.transposeA ? k * p.m + row : row * p.k + k));
      double right = before.at(1, matrix * p.k * p.n + (p.transposeB ? column * p.k + k : k * p.n + column));
      sum += left * right;
      magnitude += std::abs(left * right);
    }
    double bound = magnitude * 0x1p-24 * (static_cast<double>(p.k) + 4) + std::abs(sum) * roundoff(p.c) + 1e-7;
    ASSERT_NEAR(test.at(2, i), sum, bound) << "row " << row << " column " << column;
  }
}

TEST(Matmul, AllLayoutsOfOddShapesAtEveryLevel) {
  forEachLevel([](const cpu::Loops &loops) {
    for (int layout = 0; layout < 8; ++layout)
      for (Product p :
           {Product{7, 33, 3}, Product{1, 1, 1}, Product{29, 65, 17}, Product{15, 16, 400}, Product{61, 31, 33, 3}}) {
        p.transposeA = layout & 1;
        p.transposeB = layout & 2;
        p.accumulate = layout & 4;
        expectProduct(p, loops);
      }
  });
}

TEST(Matmul, AllTypesAtEveryLevel) {
  forEachLevel([](const cpu::Loops &loops) {
    for (pb::DataType a : {pb::F32, pb::BF16, pb::F16})
      for (pb::DataType b : {pb::F32, pb::BF16, pb::F16})
        for (pb::DataType c : {pb::F32, pb::BF16, pb::F16})
          for (int layout = 0; layout < 4; ++layout)
            expectProduct({19, 37, 23, 1, (layout & 1) != 0, (layout & 2) != 0, layout == 3, a, b, c}, loops);
  });
}

// bf16 values are processed in pairs. An odd depth leaves half a pair. Depths beyond one block continue the sum.
TEST(Matmul, DeepBf16ProductsContinueOverBlocks) {
  forEachLevel([](const cpu::Loops &loops) {
    for (int64_t k : {767, 769, 1601})
      for (int layout = 0; layout < 4; ++layout)
        expectProduct({9, 34, k, 1, (layout & 1) != 0, (layout & 2) != 0, true, pb::BF16, pb::BF16, pb::BF16}, loops);
  });
}

// Tests few and many rows, whole and partial tiles, and depths of one and several blocks.
TEST(Matmul, AddsABiasAtEveryLevel) {
  forEachLevel([](const cpu::Loops &loops) {
    for (pb::DataType type : {pb::F32, pb::BF16, pb::F16})
      for (Product p : {Product{1, 40, 9}, Product{4, 33, 500}, Product{5, 32, 3}, Product{29, 65, 17},
                        Product{15, 50, 801}, Product{6, 1, 7}}) {
        p.a = p.b = p.c = type;
        p.hasBias = true;
        expectProduct(p, loops);
        p.transposeB = true;
        expectProduct(p, loops);
      }
  });
  expectProduct({301, 515, 130, 1, false, false, false, pb::BF16, pb::BF16, pb::F32, true}, cpu::bestLoops(), 2);
}

TEST(Matmul, ManyTilesOnTwoThreads) {
  expectProduct({301, 515, 130}, cpu::bestLoops(), 2);
  expectProduct({301, 515, 130, 1, true, true, true, pb::BF16, pb::BF16, pb::F32}, cpu::bestLoops(), 2);
}

TEST(Matmul, EmptyDepthGivesZerosOrKeepsTheOutput) {
  for (pb::DataType type : {pb::F32, pb::BF16})
    for (bool accumulate : {false, true})
      expectProduct({5, 6, 0, 1, false, false, accumulate, type, type, type}, cpu::bestLoops());
  CallUnderTest nothing = makeCall({0, 6, 4});
  nothing.run(1);
}

TEST(Matmul, OverwritesNans) {
  CallUnderTest test = makeCall({5, 40, 8});
  for (int64_t i = 0; i < 200; ++i)
    setValue(test.buffers[2], pb::F32, i, NAN);
  test.run(1);
  for (int64_t i = 0; i < 200; ++i)
    ASSERT_FALSE(std::isnan(test.at(2, i)));
}

// The middle expert has no tokens. Its weights are NaN, so reading them would spoil the result.
TEST(Matmul, AMatrixOfZerosIsMultipliedWithoutReadingTheOther) {
  forEachLevel([](const cpu::Loops &loops) {
    for (pb::DataType type : {pb::F32, pb::BF16})
      for (int64_t m : {1, 3, 40})
        for (int layout = 0; layout < 8; ++layout) {
          Product p{m, 70, 33, 3, (layout & 1) != 0, (layout & 2) != 0, (layout & 4) != 0, type, type, type};
          CallUnderTest test = makeCall(p);
          for (int64_t i = m * 33; i < 2 * m * 33; ++i)
            setValue(test.buffers[0], type, i, 0);
          for (int64_t i = 33 * 70; i < 2 * 33 * 70; ++i)
            setValue(test.buffers[1], type, i, NAN);
          CallUnderTest before = test;
          test.run(2, loops);
          for (int64_t i = 0; i < 3 * m * 70; ++i)
            if (bool isEmpty = i / (m * 70) == 1; isEmpty)
              ASSERT_EQ(test.at(2, i), p.accumulate ? before.at(2, i) : 0);
            else
              ASSERT_FALSE(std::isnan(test.at(2, i)));
        }
  });
}

// Only the last element of the matrix is not zero.
TEST(Matmul, AMatrixThatIsNearlyZeroIsMultiplied) {
  for (bool transposeA : {false, true}) {
    CallUnderTest test = makeCall({3, 20, 9, 2, transposeA});
    for (int64_t i = 0; i < 2 * 27 - 1; ++i)
      setValue(test.buffers[0], pb::F32, i, 0);
    test.run(1);
    for (int64_t column = 0; column < 20; ++column) {
      ASSERT_EQ(test.at(2, 80 + column), 0);
      ASSERT_EQ(test.at(2, 100 + column), static_cast<float>(test.at(0, 53) * test.at(1, 180 + 8 * 20 + column)));
    }
  }
}

TEST(Matmul, SameBitsForAnyNumberOfThreads) {
  for (pb::DataType type : {pb::F32, pb::BF16, pb::F16})
    expectSameBitsForAnyThreads(
        [type] { return makeCall({130, 300, 401, 2, false, true, true, type, type, pb::F32}); });
  expectSameBitsForAnyThreads(
      [] { return makeCall({130, 300, 401, 1, false, true, false, pb::F32, pb::F32, pb::F32, /*hasBias=*/true}); });
}

} // namespace

} // namespace espalier::rt
