// Tests ops on rows, labels, tails and positions, and dropout, unsharded and on shards of a dimension.
#include "format/abi.h"
#include "test/interpret/program.h"

#include <cmath>

namespace espalier {
namespace {

using testing::ElementsAre;

EvalContext onAxis(const std::string &axis, int64_t size, int64_t coordinate) {
  EvalContext context;
  context.mesh = {{axis, size, coordinate}};
  return context;
}

const std::string ids = tensorType("seq=4", "i32");

TEST(Embed, LooksUpRows) {
  Program program(oneOp({tensorType("vocab=3 hidden=2"), ids}, "model.embed %x0, %x1", tensorType("seq=4 hidden=2")));
  EXPECT_THAT(program.first({program.ramp(0, 0, 1), program.argument(1, {2, 0, 1, 2})}),
              ElementsAre(4, 5, 0, 1, 2, 3, 4, 5));
}

TEST(Embed, RowsOfOtherShardsAreZero) {
  Program program(oneOp({tensorType("vocab=3 hidden=2"), ids},
                        "model.embed %x0, %x1 {first_row = #dist.origin<tp * 3>}", tensorType("seq=4 hidden=2")));
  EXPECT_THAT(program.first({program.ramp(0, 1, 1), program.argument(1, {3, 2, 5, 6})}, onAxis("tp", 3, 1)),
              ElementsAre(1, 2, 0, 0, 5, 6, 0, 0));
}

TEST(EmbedGrad, SumsRowsById) {
  Program program(
      oneOp({ids, tensorType("seq=4 hidden=2")}, "model.embed_grad %x0, %x1", tensorType("vocab=3 hidden=2")));
  EXPECT_THAT(program.first({program.argument(0, {2, 0, 2, 2}), program.ramp(1, 0, 1)}),
              ElementsAre(2, 3, 0, 0, 10, 13));
}

TEST(View, KeepsElementsInOrder) {
  Program program(oneOp({tensorType("element=6")}, "model.view %x0", tensorType("rows=2 columns=3")));
  EXPECT_THAT(program.first({program.ramp(0, 0, 1)}), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(Pick, TakesTheLabelsColumnAndZeroOutside) {
  Program program(oneOp({tensorType("seq=4 vocab=3"), ids}, "model.pick %x0, %x1", tensorType("seq=4")));
  EXPECT_THAT(program.first({program.ramp(0, 1, 1), program.argument(1, {2, 0, -1, 3})}), ElementsAre(3, 4, 0, 0));
}

TEST(Pick, CountsColumnsFromItsShard) {
  Program program(oneOp({tensorType("seq=4 vocab=3"), ids}, "model.pick %x0, %x1 {first_column = #dist.origin<tp * 3>}",
                        tensorType("seq=4")));
  EXPECT_THAT(program.first({program.ramp(0, 1, 1), program.argument(1, {3, 2, 5, 6})}, onAxis("tp", 2, 1)),
              ElementsAre(1, 0, 9, 0));
}

TEST(PickGrad, PutsTheCotangentAtTheLabel) {
  // The cotangent is one number for all rows.
  Program program(oneOp({ids, tensorType(""), tensorType("seq=4 vocab=3")}, "model.pick_grad %x0, %x1, %x2",
                        tensorType("seq=4 vocab=3")));
  EXPECT_THAT(program.first({program.argument(0, {2, 0, -1, 1}), program.argument(1, {5}), program.ramp(2, 0, 1)}),
              ElementsAre(0, 0, 5, 5, 0, 0, 0, 0, 0, 0, 5, 0));
}

TEST(MaskTail, FillsColumnsFromValidOn) {
  std::string type = tensorType("seq=2 vocab=3");
  Program whole(oneOp({type}, "model.mask_tail %x0 {valid = 2, fill = -9.0 : f64}", type));
  EXPECT_THAT(whole.first({whole.ramp(0, 1, 1)}), ElementsAre(1, 2, -9, 4, 5, -9));
  Program part(
      oneOp({type}, "model.mask_tail %x0 {valid = 4, fill = -9.0 : f64, first_column = #dist.origin<tp * 3>}", type));
  EXPECT_THAT(part.first({part.ramp(0, 1, 1)}, onAxis("tp", 2, 1)), ElementsAre(1, -9, -9, 4, -9, -9));
  EXPECT_THAT(part.first({part.ramp(0, 1, 1)}, onAxis("tp", 2, 0)), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Rope, RotatesHalvesByPosition) {
  std::string type = tensorType("seq=2 heads=1 head_dim=4");
  Program program(oneOp({type, tensorType("seq=2", "i32")}, "model.rope %x0, %x1 {theta = 100.0 : f64}", type));
  EvalContext exact;
  exact.isExact = true;
  std::vector<double> y =
      program.first({program.argument(0, {1, 2, 3, 4, 1, 2, 3, 4}), program.argument(1, {0, 3})}, exact);
  EXPECT_THAT(std::vector<double>(y.begin(), y.begin() + 4), ElementsAre(1, 2, 3, 4));
  // Pair (0, 2) rotates by 3 radians, pair (1, 3) by 3 / 100^(2/4) = 0.3.
  EXPECT_DOUBLE_EQ(y[4], std::cos(3.0) - 3 * std::sin(3.0));
  EXPECT_DOUBLE_EQ(y[6], 3 * std::cos(3.0) + std::sin(3.0));
  EXPECT_DOUBLE_EQ(y[5], 2 * std::cos(0.3) - 4 * std::sin(0.3));
  EXPECT_DOUBLE_EQ(y[7], 4 * std::cos(0.3) + 2 * std::sin(0.3));
}

/// Rotates [1, 2, 3, 4] by position 3 with theta 100.
std::vector<double> rotated(const std::string &attributes) {
  std::string type = tensorType("seq=1 heads=1 head_dim=4");
  Program program(
      oneOp({type, tensorType("seq=1", "i32")}, "model.rope %x0, %x1 {theta = 100.0 : f64" + attributes + "}", type));
  EvalContext exact;
  exact.isExact = true;
  return program.first({program.argument(0, {1, 2, 3, 4}), program.argument(1, {3})}, exact);
}

/// Returns [1, 2, 3, 4] with pairs (0, 2) and (1, 3) rotated by the angles.
std::vector<double> halvesBy(double first, double second) {
  return {std::cos(first) - 3 * std::sin(first), 2 * std::cos(second) - 4 * std::sin(second),
          3 * std::cos(first) + std::sin(first), 4 * std::cos(second) + 2 * std::sin(second)};
}

void expectClose(const std::vector<double> &got, const std::vector<double> &wanted) {
  EXPECT_THAT(got, testing::Pointwise(testing::DoubleNear(1e-12), wanted));
}

TEST(Rope, RotatesTheFirstColumnsAlone) {
  expectClose(rotated(", rotary = 2 : i64"),
              {std::cos(3.0) - 2 * std::sin(3.0), 2 * std::cos(3.0) + std::sin(3.0), 3, 4});
}

TEST(Rope, PairsNeighbours) {
  double fast = 3, slow = 0.3;
  expectClose(rotated(", interleaved"),
              {std::cos(fast) - 2 * std::sin(fast), 2 * std::cos(fast) + std::sin(fast),
               3 * std::cos(slow) - 4 * std::sin(slow), 4 * std::cos(slow) + 3 * std::sin(slow)});
}

TEST(Rope, ScalesPositions) { expectClose(rotated(", factor = 4.0 : f64"), halvesBy(0.75, 0.075)); }

// Over 40 pi positions pair 0 turns 20 times, pair 1 twice, which is a third of the way from 1 to 4.
TEST(Rope, ScalesPairsThatTurnSlowly) {
  double kept = 1.0 / 3;
  expectClose(rotated(", factor = 4.0 : f64, slow = 1.0 : f64, fast = 4.0 : f64, original_context = "
                      "125.66370614359172 : f64"),
              halvesBy(3, 0.3 * ((1 - kept) / 4 + kept)));
}

TEST(Rope, ScalesLaterPairs) {
  std::vector<double> y = rotated(", factor = 4.0 : f64, slow = 2.0 : f64, fast = 0.0 : f64, amplitude = 2.0 : f64");
  std::vector<double> wanted = halvesBy(3, 0.3 * (0.5 / 4 + 0.5));
  for (double &value : wanted)
    value *= 2;
  expectClose(y, wanted);
}

TEST(Rope, InverseRotatesBack) {
  std::string type = tensorType("seq=2 heads=3 head_dim=4"), positions = tensorType("seq=2", "i32");
  Program program("func.func @f(%x: " + type + ", %p: " + positions + ") -> " + type + " {\n" +
                  " %a = model.rope %x, %p {theta = 10000.0 : f64} : (" + type + ", " + positions + ") -> " + type +
                  "\n %b = model.rope %a, %p {theta = 10000.0 : f64, inverse} : (" + type + ", " + positions + ") -> " +
                  type + "\n return %b : " + type + "\n}");
  EvalContext exact;
  exact.isExact = true;
  Tensor x = program.ramp(0, -3, 0.25);
  std::vector<double> y = program.first({x, program.argument(1, {5, 900})}, exact);
  for (size_t i = 0; i < y.size(); ++i)
    EXPECT_NEAR(y[i], x.values[i], 1e-12);
}

TEST(Dropout, KeepsWhatTheRandomBitsKeep) {
  std::string type = tensorType("batch=2 seq=3 hidden=4");
  Program program(oneOp({type}, "model.dropout %x0 {rate = 0.25 : f64, id = 3 : i64}", type));
  EvalContext context;
  context.isExact = true;
  context.seed = 7;
  context.step = 11;
  context.layer = 2;
  Tensor x = program.ramp(0, 1, 1);
  std::vector<double> y = program.first({x}, context);
  int kept = 0;
  for (uint32_t i = 0; i < 24; ++i) {
    bool isKept = rt::randomBits(7, 11, 2 << 8 | 3, i / 12, i % 12) >= rt::dropoutThreshold(0.25);
    kept += isKept;
    EXPECT_DOUBLE_EQ(y[i], isKept ? x.values[i] / 0.75 : 0) << i;
  }
  EXPECT_GT(kept, 0);
  EXPECT_LT(kept, 24);
}

TEST(Dropout, ShardsDropTheSameElements) {
  std::string whole = tensorType("batch=4 seq=6 hidden=2"), part = tensorType("batch=2 seq=3 hidden=2");
  Program unsplit(oneOp({whole}, "model.dropout %x0 {rate = 0.5 : f64, id = 1 : i64}", whole));
  Program split(oneOp({part},
                      "model.dropout %x0 {rate = 0.5 : f64, id = 1 : i64, origins = [#dist.origin<micro_batch * 2>, "
                      "#dist.origin<tp * 3>, unit], unsplit = array<i64: 4, 6, 2>}",
                      part));
  std::vector<double> all = unsplit.first({Tensor(unsplit.argumentType(0), std::vector<double>(48, 1.0))});
  for (int64_t microBatch : {0, 1})
    for (int64_t coordinate : {0, 1}) {
      EvalContext context = onAxis("tp", 2, coordinate);
      context.microBatch = microBatch;
      std::vector<double> some = split.first({Tensor(split.argumentType(0), std::vector<double>(12, 1.0))}, context);
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t t = 0; t < 3; ++t)
          for (int64_t h = 0; h < 2; ++h)
            EXPECT_EQ(some[(b * 3 + t) * 2 + h], all[((b + microBatch * 2) * 6 + t + coordinate * 3) * 2 + h]);
    }
}

TEST(Dropout, FirstSampleSelectsAMicroBatchOfTheBatch) {
  std::string large = tensorType("batch=4 hidden=8"), small = tensorType("batch=2 hidden=8");
  Program whole(oneOp({large}, "model.dropout %x0 {rate = 0.5 : f64, id = 1 : i64}", large));
  Program half(oneOp({small}, "model.dropout %x0 {rate = 0.5 : f64, id = 1 : i64}", small));
  std::vector<double> all = whole.first({Tensor(whole.argumentType(0), std::vector<double>(32, 1.0))});
  EvalContext context;
  context.firstSample = 2;
  EXPECT_THAT(half.first({Tensor(half.argumentType(0), std::vector<double>(16, 1.0))}, context),
              testing::ElementsAreArray(all.begin() + 16, all.end()));
}

} // namespace
} // namespace espalier
