#include "format/q8_block.h"
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

/// Zeroes stored rows of a, which are rows of tokens: 40 of each 60, and all of the last matrix. Compares with the
/// product in double precision, and expects that infinities in rows of b that belong to zeros do not matter.
void expectSkipsZeroRows(const Product &p, const cpu::Loops &loops) {
  CallUnderTest test = makeCall(p);
  int64_t lines = p.transposeA ? p.k : p.m, width = p.transposeA ? p.m : p.k;
  auto isZero = [&](int64_t matrix, int64_t line) { return matrix == p.batch - 1 || line % 60 >= 20; };
  for (int64_t matrix = 0; matrix < p.batch; ++matrix)
    for (int64_t line = 0; line < lines; ++line)
      for (int64_t i = 0; i < width && isZero(matrix, line); ++i)
        setValue(test.buffers[0], p.a, (matrix * lines + line) * width + i, 0);
  for (int64_t line = 20; line < lines && p.transposeA && lines < 3000; ++line) // k is the dimension of tokens
    for (int64_t column = 0; column < p.n && isZero(0, line); ++column)
      setValue(test.buffers[1], p.b, p.transposeB ? column * p.k + line : line * p.n + column, INFINITY);
  CallUnderTest before = test;
  test.run(2, loops);
  for (int64_t i = 0; i < p.batch * p.m * p.n; ++i) {
    int64_t matrix = i / (p.m * p.n), row = i / p.n % p.m, column = i % p.n;
    double sum = p.accumulate ? before.at(2, i) : 0, magnitude = std::abs(sum);
    for (int64_t k = 0; k < p.k; ++k) {
      double left = before.at(0, matrix * p.m * p.k + (p.transposeA ? k * p.m + row : row * p.k + k));
      double right = before.at(1, matrix * p.k * p.n + (p.transposeB ? column * p.k + k : k * p.n + column));
      sum += left == 0 ? 0 : left * right;
      magnitude += left == 0 ? 0 : std::abs(left * right);
    }
    double bound = magnitude * 0x1p-24 * (static_cast<double>(p.k) + 4) + std::abs(sum) * roundoff(p.c) + 1e-7;
    ASSERT_NEAR(test.at(2, i), sum, bound) << "matrix " << matrix << " row " << row << " column " << column;
    if (!p.transposeA && isZero(matrix, row))
      ASSERT_EQ(test.at(2, i), p.accumulate ? before.at(2, i) : 0);
  }
}

/// Expects that rows [begin, end) of every matrix are those of `all`, and that the other rows did not change.
void expectRows(const CallUnderTest &some, const CallUnderTest &all, const CallUnderTest &before, const Product &p,
                int64_t begin, int64_t end) {
  for (int64_t i = 0; i < p.batch * p.m * p.n; ++i) {
    int64_t row = i / p.n % p.m;
    ASSERT_EQ(some.at(2, i), row >= begin && row < end ? all.at(2, i) : before.at(2, i)) << "element " << i;
  }
}

// Packed weights give the bits of stored weights, for every number of rows. The stored weights are not read.
TEST(Matmul, PackedWeightsGiveTheSameBitsAtEveryLevel) {
  forEachLevel([](const cpu::Loops &loops) {
    for (pb::DataType type : {pb::F32, pb::BF16, pb::F16})
      for (Product p : {Product{8, 70, 33}, Product{16, 500, 801}, Product{5, 400, 17, 3}, Product{65, 130, 801, 2},
                        Product{9, 70, 50, 2, false, true}}) {
        p.a = p.b = p.c = type;
        CallUnderTest stored = makeCall(p), packed = makeCall(p);
        packed.packs = true;
        stored.run(2, loops);
        packed.run(2, loops);
        EXPECT_EQ(stored.buffers[2], packed.buffers[2]) << p.m << " rows, type " << type;
      }
  });
}

// A row has the same bits in a product of few rows as in one of many rows, for any types and depth.
TEST(Matmul, FewRowsGiveTheBitsOfManyRowsAtEveryLevel) {
  constexpr pb::DataType types[] = {pb::F32, pb::BF16, pb::F16};
  auto expectEqual = [](Product p, int64_t rows, const cpu::Loops &loops) {
    p.m = rows;
    CallUnderTest few = makeCall(p);
    p.m = 16;
    CallUnderTest many = makeCall(p);
    few.run(2, loops);
    many.run(2, loops);
    for (int64_t i = 0; i < rows * p.n; ++i)
      ASSERT_EQ(few.at(2, i), many.at(2, i))
          << rows << " rows, depth " << p.k << ", types " << p.a << p.b << p.c << ", element " << i;
  };
  forEachLevel([&](const cpu::Loops &loops) {
    for (int64_t rows : {1, 3, 4})
      for (int64_t depth : {33, 500, 801})
        for (pb::DataType a : types)
          for (pb::DataType b : types) {
            expectEqual({.m = 0, .n = 50, .k = depth, .a = a, .b = b, .c = a}, rows, loops);
            expectEqual({.m = 0, .n = 50, .k = depth, .accumulate = true, .a = a, .b = b}, rows, loops);
            expectEqual({.m = 0, .n = 50, .k = depth, .a = a, .b = b, .hasBias = true}, rows, loops);
          }
  });
}

// A product of few rows with a transposed b gives other bits with packed weights than without: those of a product of
// more rows.
TEST(Matmul, FewRowsOfPackedWeightsGiveTheBitsOfManyRowsAtEveryLevel) {
  forEachLevel([](const cpu::Loops &loops) {
    for (bool transposed : {false, true}) {
      CallUnderTest few = makeCall({2, 5000, 500, 1, false, transposed});
      CallUnderTest many = makeCall({16, 5000, 500, 1, false, transposed});
      few.packs = true;
      few.run(2, loops);
      many.run(2, loops);
      for (int64_t i = 0; i < int64_t{2} * 5000; ++i)
        ASSERT_EQ(few.at(2, i), many.at(2, i)) << "element " << i;
    }
  });
}

TEST(Matmul, ASharedCopyServesAnyNumberOfRows) {
  auto layoutOf = [](const Product &p) {
    CallUnderTest test = makeCall(p);
    return makeLibraryKernel(test.call, test.types, 2)->packedLayout();
  };
  EXPECT_TRUE(layoutOf({8, 40, 20}));
  EXPECT_EQ(layoutOf({8, 40, 20}), layoutOf({512, 40, 20}));
  EXPECT_EQ(layoutOf({8, 40, 20}), layoutOf({1, 40, 20}));
  Product few = {4, 40, 20};
  few.b = pb::BF16;
  EXPECT_FALSE(layoutOf(few));
  EXPECT_NE(layoutOf({8, 40, 20}), layoutOf({8, 40, 20, 1, false, /*transposeB=*/true}));
  EXPECT_NE(layoutOf({8, 40, 20}), layoutOf({8, 20, 40}));
}

/// Replaces the weights by those that Q8Block holds.
void roundToBlocks(const Product &p, CallUnderTest &test) {
  auto place = [&](int64_t matrix, int64_t k, int64_t column) {
    return matrix * p.k * p.n + (p.transposeB ? column * p.k + k : k * p.n + column);
  };
  for (int64_t matrix = 0; matrix < p.batch; ++matrix)
    for (int64_t column = 0; column < p.n; ++column)
      for (int64_t first = 0; first < p.k; first += Q8Block::weights) {
        int64_t end = std::min(p.k, first + Q8Block::weights);
        double most = 0;
        for (int64_t k = first; k < end; ++k)
          most = std::max(most, std::abs(test.at(1, place(matrix, k, column))));
        float scale = static_cast<float>(most) / 127, inverse = scale > 0 ? 1 / scale : 0;
        for (int64_t k = first; k < end; ++k) {
          float weight = std::round(static_cast<float>(test.at(1, place(matrix, k, column))) * inverse);
          setValue(test.buffers[1], pb::F32, place(matrix, k, column), weight * f16ToFloat(floatToF16(scale)));
        }
      }
}

// The plain loop gets the weights in f32 that the format holds.
TEST(Matmul, WeightsInEightBitsAreThoseOfTheFormatAtEveryLevel) {
  forEachLevel([](const cpu::Loops &loops) {
    for (pb::DataType type : {pb::F32, pb::BF16, pb::F16})
      for (Product p : {Product{1, 33, 40}, Product{3, 5, 31}, Product{8, 500, 801}, Product{65, 130, 801, 2},
                        Product{4, 70, 32, 1, false, true}, Product{17, 65, 385, 2, false, true}}) {
        p.a = p.b = type;
        CallUnderTest test = makeCall(p);
        test.packs = test.quantizes = true;
        test.run(2, loops);
        Product whole = p;
        whole.b = pb::F32;
        CallUnderTest stored = makeCall(p), rounded = makeCall(whole);
        for (int64_t i = 0; i < p.batch * p.k * p.n; ++i)
          setValue(rounded.buffers[1], pb::F32, i, static_cast<float>(stored.at(1, i)));
        roundToBlocks(p, rounded);
        for (int64_t i = 0; i < p.batch * p.m * p.n; ++i) {
          int64_t matrix = i / (p.m * p.n), row = i / p.n % p.m, column = i % p.n;
          double sum = 0, magnitude = 0;
          for (int64_t k = 0; k < p.k; ++k) {
            double term = stored.at(0, matrix * p.m * p.k + row * p.k + k) *
                          rounded.at(1, matrix * p.k * p.n + (p.transposeB ? column * p.k + k : k * p.n + column));
            sum += term;
            magnitude += std::abs(term);
          }
          ASSERT_NEAR(test.at(2, i), sum, magnitude * 0x1p-24 * (static_cast<double>(p.k) + 4) + 1e-7)
              << p.m << "x" << p.n << "x" << p.k << " type " << type << " row " << row << " column " << column;
        }
      }
  });
}

TEST(Matmul, RowsOfWeightsInEightBitsDoNotDependOnOtherRowsAtEveryLevel) {
  forEachLevel([](const cpu::Loops &loops) {
    for (int64_t rows : {1, 3, 4, 7})
      for (bool transposed : {false, true}) {
        CallUnderTest few = makeCall({rows, 130, 801, 1, false, transposed});
        CallUnderTest many = makeCall({40, 130, 801, 1, false, transposed});
        few.packs = few.quantizes = many.packs = many.quantizes = true;
        few.run(1, loops);
        many.run(3, loops);
        for (int64_t i = 0; i < rows * 130; ++i)
          ASSERT_EQ(few.at(2, i), many.at(2, i)) << rows << " rows, element " << i;
      }
  });
}

TEST(Matmul, NarrowWeightsAreNotQuantized) {
  auto layoutOf = [](const Product &p) {
    CallUnderTest test = makeCall(p);
    return makeLibraryKernel(test.call, test.types, 1, /*quantizes=*/true)->packedLayout();
  };
  EXPECT_TRUE(layoutOf({1, 8, 64})->isQuantized);
  EXPECT_FALSE(layoutOf({1, 7, 64})->isQuantized); // as a router of experts
  EXPECT_EQ(layoutOf({1, 8, 64}), layoutOf({200, 8, 64}));
}

TEST(Matmul, AWeightInEightBitsThatIsNotFiniteSpoilsTheResult) {
  for (float weight : {NAN, INFINITY}) {
    CallUnderTest test = makeCall({2, 40, 64});
    setValue(test.buffers[1], pb::F32, 3 * 40 + 5, weight);
    test.packs = test.quantizes = true;
    test.run(1);
    EXPECT_FALSE(std::isfinite(test.at(2, 5)));
    EXPECT_TRUE(std::isfinite(test.at(2, 6)));
  }
}

// Slots of experts without a token are rows of zeros, which are not multiplied: their results are zeros, or the old
// values if the call adds, and gradients of weights have no terms of them.
TEST(Matmul, RowsOfZerosAreNotMultipliedAtEveryLevel) {
  forEachLevel([](const cpu::Loops &loops) {
    for (pb::DataType type : {pb::F32, pb::BF16})
      for (pb::DataType result : {pb::F32, pb::BF16})
        for (int layout = 0; layout < 8; ++layout) {
          Product p{120, 70, 33, 3, (layout & 1) != 0, (layout & 2) != 0, (layout & 4) != 0, type, type, result};
          if (p.transposeA)
            std::swap(p.m, p.k);
          expectSkipsZeroRows(p, loops);
        }
    expectSkipsZeroRows({20, 40, 3000, 2, /*transposeA=*/true}, loops); // more ranges than the kernel tells apart
  });
}

// Rows do not depend on how many other rows are computed.
TEST(Matmul, ComputesTheRowsThatAreNeeded) {
  forEachLevel([](const cpu::Loops &loops) {
    for (int64_t m : {3, 8, 15, 60})
      for (bool transposeB : {false, true})
        for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {1, 3}, {m - 1, m}}) {
          Product p{m, 70, 33, 1, false, transposeB};
          CallUnderTest all = makeCall(p), some = makeCall(p), before = makeCall(p);
          some.firstRow = begin;
          some.endRow = end;
          all.run(2, loops);
          some.run(2, loops);
          expectRows(some, all, before, p, begin, end);
        }
  });
}

} // namespace

} // namespace espalier::rt
