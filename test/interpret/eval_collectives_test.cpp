// Tests collectives on a mesh of 2 x 3 ranks, with groups over either axis and over both.
#include "test/interpret/program.h"
#include "test/interpret/run_ranks.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Returns the first result of `op` on each of the six ranks of the mesh dp = 2, tp = 3. x is [a = 6] with values 100 *
/// rank + i.
std::vector<std::vector<double>> runOnMesh(const std::string &op, const std::string &in, const std::string &out) {
  Program program(oneOp({tensorType(in)}, op, tensorType(out)));
  std::vector<std::vector<double>> results(6);
  llvm::Error failure = runRanks(6, [&](int rank, EvalContext &context) -> llvm::Error {
    context.mesh = {{"dp", 2, rank / 3}, {"tp", 3, rank % 3}};
    auto values = evaluate(program.function(), {program.ramp(0, 100 * rank, 1)}, context);
    if (!values)
      return values.takeError();
    results[rank] = values->front().values;
    return llvm::Error::success();
  });
  EXPECT_EQ(llvm::toString(std::move(failure)), "");
  return results;
}

TEST(Collectives, AllReduceSumsWithinTheGroup) {
  auto overTp = runOnMesh("dist.all_reduce %x0 over [\"tp\"] \"sum\"", "a=2", "a=2");
  EXPECT_THAT(overTp[0], ElementsAre(300, 303));
  EXPECT_EQ(overTp[2], overTp[0]);
  EXPECT_THAT(overTp[3], ElementsAre(1200, 1203));
  auto overDp = runOnMesh("dist.all_reduce %x0 over [\"dp\"] \"sum\"", "a=2", "a=2");
  EXPECT_THAT(overDp[1], ElementsAre(500, 502));
  EXPECT_EQ(overDp[4], overDp[1]);
  auto overBoth = runOnMesh("dist.all_reduce %x0 over [\"dp\", \"tp\"] \"sum\"", "a=2", "a=2");
  for (const auto &result : overBoth)
    EXPECT_THAT(result, ElementsAre(1500, 1506));
}

TEST(Collectives, AllReduceTakesTheMaximum) {
  auto result = runOnMesh("dist.all_reduce %x0 over [\"tp\"] \"max\"", "a=2", "a=2");
  EXPECT_THAT(result[0], ElementsAre(200, 201));
  EXPECT_THAT(result[5], ElementsAre(500, 501));
}

TEST(Collectives, AllGatherOrdersShardsByPosition) {
  auto inner = runOnMesh("dist.all_gather %x0 over [\"tp\"] dim 1", "a=2 b=1", "a=2 b=3");
  EXPECT_THAT(inner[1], ElementsAre(0, 100, 200, 1, 101, 201));
  EXPECT_THAT(inner[3], ElementsAre(300, 400, 500, 301, 401, 501));
  // The first listed axis is the slowest.
  auto both = runOnMesh("dist.all_gather %x0 over [\"tp\", \"dp\"] dim 0", "a=1", "a=6");
  EXPECT_THAT(both[4], ElementsAre(0, 300, 100, 400, 200, 500));
}

/// Each rank gets its column of the rows of all ranks, in the order of positions.
TEST(Collectives, AllToAllMovesASplitToAnotherDimension) {
  auto result = runOnMesh("dist.all_to_all %x0 over [\"tp\"] split 1 concat 0", "a=2 b=3", "a=6 b=1");
  EXPECT_THAT(result[0], ElementsAre(0, 3, 100, 103, 200, 203));
  EXPECT_THAT(result[2], ElementsAre(2, 5, 102, 105, 202, 205));
  EXPECT_THAT(result[4], ElementsAre(301, 304, 401, 404, 501, 504));
  auto back = runOnMesh("dist.all_to_all %x0 over [\"dp\"] split 0 concat 2", "a=2 b=1 c=2", "a=1 b=1 c=4");
  EXPECT_THAT(back[1], ElementsAre(100, 101, 400, 401));
  EXPECT_THAT(back[4], ElementsAre(102, 103, 402, 403));
}

TEST(Collectives, ReduceScatterGivesEachRankItsShard) {
  auto result = runOnMesh("dist.reduce_scatter %x0 over [\"tp\"] dim 0", "a=3 b=2", "a=1 b=2");
  EXPECT_THAT(result[0], ElementsAre(300, 303));
  EXPECT_THAT(result[1], ElementsAre(306, 309));
  EXPECT_THAT(result[5], ElementsAre(1212, 1215));
}

TEST(Collectives, SliceTakesTheOwnShard) {
  auto result = runOnMesh("dist.slice %x0 over [\"dp\", \"tp\"] dim 1", "a=1 b=6", "a=1 b=1");
  for (int rank = 0; rank < 6; ++rank)
    EXPECT_THAT(result[rank], ElementsAre(101 * rank));
}

TEST(Collectives, ReshardOnGlobalShapesKeepsTheValue) {
  std::string type = tensorType("a=2");
  Program program("func.func @f(%x: " + type + ") -> " + type +
                  " {\n %y = dist.reshard %x from <[{tp}]> to <[{}]> : (" + type + ") -> " + type +
                  "\n return %y : " + type + "\n}");
  EXPECT_THAT(program.first({program.ramp(0, 1, 1)}), ElementsAre(1, 2));
}

TEST(Collectives, AGroupOfOneNeedsNoOthers) {
  Program program(oneOp({tensorType("a=2")}, "dist.all_reduce %x0 over [\"cp\"] \"sum\"", tensorType("a=2")));
  EXPECT_THAT(program.first({program.ramp(0, 1, 1)}), ElementsAre(1, 2));
}

TEST(Collectives, ARankAloneIsRefused) {
  Program program(oneOp({tensorType("a=2")}, "dist.all_reduce %x0 over [\"tp\"] \"sum\"", tensorType("a=2")));
  EvalContext context;
  context.mesh = {{"tp", 4, 0}};
  EXPECT_THAT(program.error({program.ramp(0, 1, 1)}, context),
              HasSubstr("dist.all_reduce: needs the other 3 ranks of its group, but runs alone"));
}

TEST(Collectives, SizesThatDoNotFitTheGroupAreRefused) {
  Program program(oneOp({tensorType("a=6")}, "dist.slice %x0 over [\"tp\"] dim 0", tensorType("a=3")));
  EvalContext context;
  context.mesh = {{"tp", 3, 0}};
  EXPECT_THAT(program.error({program.ramp(0, 1, 1)}, context),
              HasSubstr("dist.slice: sizes 6 and 3 do not fit a group of 3"));
}

} // namespace
} // namespace espalier
