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

/// Computes a text of 4 tokens in pieces, from a state that must not be read at position 0. Another text has padding
/// only.
TEST(CarriedRecurrence, ContinuesFromTheState) {
  std::vector<double> whole = evaluate("{delta}", false, halves, none), made, state(2 * depth * width, 9);
  std::vector<double> q = {1, 2, -1, 1, 0, 3, 2, 1}, k = {2, 1, 1, 0, -1, 1, 1, 1},
                      v = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 0, 1}, beta = {1, 0.5, 2, 1};
  auto rows = [](const std::vector<double> &all, int64_t first, int64_t count, int64_t columns) {
    std::vector<double> part(2 * 2 * columns, 5); // two texts of two tokens
    std::copy_n(all.begin() + first * columns, count * columns, part.begin());
    return part;
  };
  std::string key = tensorType("batch=2 seq=2 heads=1 key=2"), value = tensorType("batch=2 seq=2 heads=1 value=3"),
              gate = tensorType("batch=2 seq=2 heads=1"), at = tensorType("batch=2 seq=2", "i32"),
              states = tensorType("batch=2 heads=1 key=2 value=3");
  Program program("func.func @f(%q: " + key + ", %k: " + key + ", %v: " + value + ", %d: " + gate + ", %b: " + gate +
                  ", %p: " + at + ", %s: " + states + ") -> (" + value + ", " + states +
                  ") {\n %o:2 = model.carried_recurrence %q, %k, %v, %d, %b, %p, %s {delta} : (" + key + ", " + key +
                  ", " + value + ", " + gate + ", " + gate + ", " + at + ", " + states + ") -> (" + value + ", " +
                  states + ")\n return %o#0, %o#1 : " + value + ", " + states + "\n}");
  for (auto [first, count] : {std::pair<int64_t, int64_t>(0, 2), {2, 1}, {3, 1}}) {
    std::vector<double> positions = {static_cast<double>(first), count == 2 ? static_cast<double>(first + 1) : -1, -1,
                                     -1};
    EvalContext context;
    std::vector<Tensor> results = program.evaluate(
        {program.argument(0, rows(q, first, count, 2)), program.argument(1, rows(k, first, count, 2)),
         program.argument(2, rows(v, first, count, 3)), program.argument(3, rows(halves, first, count, 1)),
         program.argument(4, rows(beta, first, count, 1)), program.argument(5, positions), program.argument(6, state)},
        context);
    made.insert(made.end(), results[0].values.begin(), results[0].values.begin() + count * width);
    state = results[1].values;
  }
  EXPECT_THAT(made, testing::Pointwise(testing::DoubleNear(1e-12), whole));
  EXPECT_EQ(std::vector(state.begin() + depth * width, state.end()), std::vector<double>(depth * width, 9));
}

TEST(CarriedConv, ReadsTheLastInputs) {
  std::string x = tensorType("batch=1 seq=2 channels=1"), weight = tensorType("channels=1 taps=3"),
              at = tensorType("batch=1 seq=2", "i32"), halo = tensorType("batch=1 earlier=2 channels=1");
  Program program("func.func @f(%x: " + x + ", %w: " + weight + ", %p: " + at + ", %h: " + halo + ") -> (" + x + ", " +
                  halo + ") {\n %y:2 = model.carried_conv %x, %w, %p, %h : (" + x + ", " + weight + ", " + at + ", " +
                  halo + ") -> (" + x + ", " + halo + ")\n return %y#0, %y#1 : " + x + ", " + halo + "\n}");
  auto run = [&](std::vector<double> in, std::vector<double> positions, std::vector<double> before) {
    EvalContext context;
    std::vector<Tensor> results = program.evaluate({program.argument(0, in), program.argument(1, {1, 10, 100}),
                                                    program.argument(2, positions), program.argument(3, before)},
                                                   context);
    return std::pair(results[0].values, results[1].values);
  };
  EXPECT_EQ(run({1, 2}, {0, 1}, {7, 7}), std::pair(std::vector<double>{100, 210}, std::vector<double>{1, 2}));
  EXPECT_EQ(run({3, 9}, {2, -1}, {1, 2}), std::pair(std::vector<double>{321, 0}, std::vector<double>{2, 3}));
  EXPECT_EQ(run({4, 5}, {3, 4}, {2, 3}), std::pair(std::vector<double>{432, 543}, std::vector<double>{4, 5}));
  EXPECT_EQ(run({9, 9}, {-1, -1}, {4, 5}), std::pair(std::vector<double>{0, 0}, std::vector<double>{4, 5}));
}

} // namespace
} // namespace espalier
