#include "compiler/interpret/tensor.h"

#include "test/interpret/program.h"

namespace espalier {
namespace {

TEST(RoundToElement, GivesTheNearestStorableNumber) {
  mlir::MLIRContext context;
  mlir::Builder builder(&context);
  EXPECT_EQ(roundToElement(builder.getF32Type(), 0.1), static_cast<double>(0.1f));
  // bf16 has 8 significant bits, so steps are 2^-7 in [1, 2). The tie 1 + 2^-8 rounds to the even neighbour.
  EXPECT_EQ(roundToElement(builder.getBF16Type(), 1 + 1.0 / 256), 1.0);
  EXPECT_EQ(roundToElement(builder.getBF16Type(), 1 + 3.0 / 256), 1 + 4.0 / 256);
  EXPECT_EQ(roundToElement(builder.getF16Type(), 1 + 1.0 / 2048), 1.0);
  EXPECT_EQ(roundToElement(builder.getF16Type(), 1 + 3.0 / 2048), 1 + 4.0 / 2048);
  EXPECT_EQ(roundToElement(builder.getF64Type(), 0.1), 0.1);
  EXPECT_EQ(roundToElement(builder.getI32Type(), 7), 7);
}

TEST(RoundToElement, OverflowsToInfinity) {
  mlir::MLIRContext context;
  mlir::Builder builder(&context);
  EXPECT_TRUE(std::isinf(roundToElement(builder.getF16Type(), 70000)));
  EXPECT_FALSE(std::isinf(roundToElement(builder.getBF16Type(), 70000)));
  EXPECT_TRUE(std::isinf(roundToElement(builder.getF32Type(), 1e39)));
  EXPECT_TRUE(std::isnan(roundToElement(builder.getBF16Type(), NAN)));
}

TEST(ForEachIndex, WalksInRowMajorOrderWithStrides) {
  std::vector<std::pair<int64_t, int64_t>> seen;
  forEachIndex({2, 3}, {{3, 1}, {1, 2}}, [&](llvm::ArrayRef<int64_t> at) { seen.emplace_back(at[0], at[1]); });
  EXPECT_THAT(seen, testing::ElementsAre(std::pair(0, 0), std::pair(1, 2), std::pair(2, 4), std::pair(3, 1),
                                         std::pair(4, 3), std::pair(5, 5)));
}

TEST(ForEachIndex, VisitsAScalarOnceAndAnEmptySpaceNever) {
  int visits = 0;
  forEachIndex({}, {}, [&](llvm::ArrayRef<int64_t>) { ++visits; });
  EXPECT_EQ(visits, 1);
  forEachIndex({4, 0}, {}, [&](llvm::ArrayRef<int64_t>) { ++visits; });
  EXPECT_EQ(visits, 1);
}

TEST(StridesAlong, IsZeroForALackingDimension) {
  Program program(oneOp({tensorType("seq=3 hidden=5")}, "model.neg %x0", tensorType("seq=3 hidden=5")));
  mlir::Builder builder(&program.context);
  llvm::SmallVector<mlir::StringAttr> dims;
  for (const char *dim : {"batch", "seq", "hidden"})
    dims.push_back(builder.getStringAttr(dim));
  EXPECT_THAT(stridesAlong(program.argumentType(0), dims), testing::ElementsAre(0, 5, 1));
}

} // namespace
} // namespace espalier
