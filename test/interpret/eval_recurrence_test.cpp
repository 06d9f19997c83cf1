// Compares recurrences and causal convolutions with sums written out here.
#include "test/interpret/program.h"

#include <cmath>

namespace espalier {
namespace {

constexpr int64_t seq = 4, depth = 2, width = 3;

/// Evaluates a recurrence of one sample and one head.
std::vector<double> evaluate(const std::string &attributes, bool isByColumn, const std::vector<double> &decay,
                             const std::vector<double> &from) {
  std::string key = tensorType("batch=1 seq=4 heads=1 key=2"), value = tensorType("batch=1 seq=4 heads=1 value=3"),
              gate = tensorType("batch=1 seq=4 heads=1"),
              decays = isByColumn ? tensorType("batch=1 seq=4 heads=1 key=2") : gate,
              begins = tensorType("batch=1 seq=4", "i32");
  Program program("func.func @f(%q: " + key + ", %k: " + key + ", %v: " + value + ", %d: " + decays + ", %b: " + gate +
                  ", %from: " + begins + ") -> " + value + " {\n %o = model.recurrence %q, %k, %v, %d, %b, %from " +
                  attributes + " : (" + key + ", " + key + ", " + value + ", " + decays + ", " + gate + ", " + begins +
                  ") -> " + value + "\n return %o : " + value + "\n}");
  return program.first({program.argument(0, {1, 2, -1, 1, 0, 3, 2, 1}), program.argument(1, {2, 1, 1, 0, -1, 1, 1, 1}),
                        program.argument(2, {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 0, 1}), program.argument(3, decay),
                        program.argument(4, {1, 0.5, 2, 1}), program.argument(5, from)});
}

const std::vector<double> none = {0, 0, 0, 0}, halves(seq, std::log(0.5));

TEST(Recurrence, AddsOuterProductsToTheState) {
  std::vector<double> y = evaluate("", false, halves, none);
  // The first state is k v^T = [[2, 4, 6], [1, 2, 3]].
  EXPECT_NEAR(y[0], 4, 1e-12);
  EXPECT_NEAR(y[2], 12, 1e-12);
  // The second is [[1, 2, 3], [0.5, 1, 1.5]] + [[2, 2.5, 3], [0, 0, 0]].
  EXPECT_NEAR(y[3], -3 + 0.5, 1e-12);
  EXPECT_NEAR(y[5], -6 + 1.5, 1e-12);
}

TEST(Recurrence, DeltaReplacesTheValueOfAKey) {
  std::vector<double> y = evaluate("{delta}", false, halves, none);
  EXPECT_NEAR(y[0], 4, 1e-12);
  // S'^T k is [1, 2, 3], so the second state is S' + [[1.5, 1.5, 1.5], [0, 0, 0]].
  EXPECT_NEAR(y[3], -2.5 + 0.5, 1e-12);
  EXPECT_NEAR(y[5], -4.5 + 1.5, 1e-12);
}

TEST(Recurrence, DecaysEachColumnOfK) {
  std::vector<double> decay(seq * depth, std::log(0.5));
  decay[2] = 0; // the first column at the second position
  std::vector<double> y = evaluate("", true, decay, none);
  EXPECT_NEAR(y[3], -4 + 0.5, 1e-12);
}

TEST(Recurrence, BeginsAgainInEachDocument) {
  std::vector<double> y = evaluate("{delta}", false, halves, {0, 0, 2, 2});
  // The third state is k (2 v)^T = [[-14, -16, -18], [14, 16, 18]].
  EXPECT_NEAR(y[2 * width], 42, 1e-12);
  EXPECT_NEAR(y[2 * width + 2], 54, 1e-12);
}

TEST(CausalConv, ReadsEarlierPositionsOfTheDocument) {
  std::string x = tensorType("batch=1 seq=4 channels=2"), weight = tensorType("channels=2 taps=3"),
              begins = tensorType("batch=1 seq=4", "i32");
  Program program("func.func @f(%x: " + x + ", %w: " + weight + ", %from: " + begins + ") -> " + x +
                  " {\n %y = model.causal_conv %x, %w, %from : (" + x + ", " + weight + ", " + begins + ") -> " + x +
                  "\n return %y : " + x + "\n}");
  std::vector<double> y =
      program.first({program.argument(0, {1, 10, 2, 20, 3, 30, 4, 40}), program.argument(1, {1, 10, 100, 2, 3, 4}),
                     program.argument(2, {0, 0, 0, 2})});
  EXPECT_THAT(y, testing::ElementsAre(100, 40, 210, 110, 321, 200, 430, 250));
}

} // namespace
} // namespace espalier
