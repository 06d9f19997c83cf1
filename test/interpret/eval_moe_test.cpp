// Compares routing with capacity, and moves of rows to experts and back, with definitions written here.
#include "test/interpret/program.h"

namespace espalier {
namespace {

using testing::ElementsAre;

std::string route(const std::string &scores, const std::string &ids, int capacity) {
  std::string type = tensorType(ids, "i32");
  return "func.func @f(%x0: " + tensorType(scores) + ") -> (" + type + ", " + type +
         ") {\n%i, %s = model.route %x0 {capacity = " + std::to_string(capacity) + " : i64} : (" + tensorType(scores) +
         ") -> (" + type + ", " + type + ")\nreturn %i, %s : " + type + ", " + type + "\n}";
}

TEST(Route, TakesTheBestExpertsAndTheLowerOfEqualOnes) {
  Program program(route("batch=1 seq=3 router=4", "choice=2 batch=1 seq=3", 3));
  EvalContext context;
  auto results = program.evaluate({program.argument(0, {1, 4, 2, 3, /**/ 5, 5, 5, 5, /**/ -1, -3, -2, -1})}, context);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_THAT(results[0].values, ElementsAre(1, 0, 0, /**/ 3, 1, 3));
  EXPECT_THAT(results[1].values, ElementsAre(0, 0, 1, /**/ 0, 1, 1));
}

/// The second group has the best expert. The other groups have higher sums of their two best experts.
TEST(Route, TakesExpertsOfTheBestGroups) {
  std::string ids = tensorType("choice=2 batch=1 seq=1", "i32"), scores = tensorType("batch=1 seq=1 router=6");
  Program program("func.func @f(%x0: " + scores + ") -> (" + ids + ", " + ids +
                  ") {\n%i, %s = model.route %x0 {capacity = 1 : i64, groups = 3 : i64, kept_groups = 2 : i64} : (" +
                  scores + ") -> (" + ids + ", " + ids + ")\nreturn %i, %s : " + ids + ", " + ids + "\n}");
  EvalContext context;
  auto results = program.evaluate({program.argument(0, {3, 2, /**/ 4, 0, /**/ 2, 3})}, context);
  EXPECT_THAT(results[0].values, ElementsAre(0, 5));
}

TEST(Route, FirstChoicesComeFirstAndFullExpertsRefuse) {
  Program program(route("batch=2 seq=3 router=2", "choice=2 batch=2 seq=3", 2));
  // In the first sample all tokens prefer expert 0; in the second sample only one token does.
  EvalContext context;
  auto results = program.evaluate({program.argument(0, {2, 1, 2, 1, 2, 1, /**/ 1, 2, 1, 2, 2, 1})}, context);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_THAT(results[0].values, ElementsAre(0, 0, 0, 1, 1, 0, /**/ 1, 1, 1, 0, 0, 1));
  EXPECT_THAT(results[1].values, ElementsAre(0, 1, -1, 0, 1, 0, /**/ 0, 1, -1, 1, -1, -1));
}

const std::string places = tensorType("choice=2 batch=2 seq=3", "i32"), rows = tensorType("batch=2 seq=3 hidden=2"),
                  weights = tensorType("choice=2 batch=2 seq=3"), slots = "expert=3 batch=2 capacity=2 hidden=2";
// Indexed by choice, sample, token.
const std::vector<double> ids = {0, 1, 0, 2, 2, 2, /**/ 1, 0, 2, 0, 1, 0},
                          slotOf = {0, 0, 1, 0, 1, -1, /**/ 1, -1, 0, 0, 0, 1};

/// Computes dispatch by its definition, element by element.
std::vector<double> dispatched(const std::vector<double> &x, bool hasChoice, const std::vector<double> &weight) {
  std::vector<double> y(3 * 2 * 2 * 2, 0.0);
  for (int k = 0; k < 2; ++k)
    for (int b = 0; b < 2; ++b)
      for (int s = 0; s < 3; ++s)
        for (int h = 0; h < 2; ++h) {
          int at = (k * 2 + b) * 3 + s, token = hasChoice ? at : b * 3 + s;
          if (slotOf[at] >= 0)
            y[((static_cast<int>(ids[at]) * 2 + b) * 2 + static_cast<int>(slotOf[at])) * 2 + h] +=
                weight[at] * x[token * 2 + h];
        }
  return y;
}

TEST(Dispatch, MovesRowsToTheirSlots) {
  Program program(oneOp({places, places, rows}, "model.dispatch %x0, %x1, %x2", tensorType(slots)));
  Tensor x = program.ramp(2, 1, 1);
  EXPECT_EQ(program.first({program.argument(0, ids), program.argument(1, slotOf), x}),
            dispatched(x.values, /*hasChoice=*/false, std::vector<double>(12, 1.0)));
}

TEST(Dispatch, WeighsTheRowOfEachChoice) {
  Program program(oneOp({places, places, tensorType("choice=2 batch=2 seq=3 hidden=2"), weights},
                        "model.dispatch %x0, %x1, %x2, %x3", tensorType(slots)));
  Tensor x = program.ramp(2, 1, 1), weight = program.ramp(3, 0.5, 0.25);
  EXPECT_EQ(program.first({program.argument(0, ids), program.argument(1, slotOf), x, weight}),
            dispatched(x.values, /*hasChoice=*/true, weight.values));
}

/// Checks <dispatch(x), y> = <x, combine(y)>. With the test of dispatch, this determines combine.
void expectTransposed(const std::string &tokens, bool isWeighted) {
  std::string more = isWeighted ? ", %x3" : "";
  std::vector<std::string> there = {places, places, tensorType(tokens)}, back = {places, places, tensorType(slots)};
  for (auto *types : {&there, &back})
    if (isWeighted)
      types->push_back(weights);
  Program dispatch(oneOp(there, "model.dispatch %x0, %x1, %x2" + more, tensorType(slots)));
  Program combine(oneOp(back, "model.combine %x0, %x1, %x2" + more, tensorType(tokens)));
  Tensor x = dispatch.ramp(2, 1, 0.5), y = combine.ramp(2, -2, 0.75);
  std::vector<Tensor> thereArguments = {dispatch.argument(0, ids), dispatch.argument(1, slotOf), x};
  std::vector<Tensor> backArguments = {combine.argument(0, ids), combine.argument(1, slotOf), y};
  if (isWeighted) {
    thereArguments.push_back(dispatch.ramp(3, 0.5, 0.25));
    backArguments.push_back(combine.ramp(3, 0.5, 0.25));
  }
  std::vector<double> moved = dispatch.first(thereArguments), returned = combine.first(backArguments);
  double left = 0, right = 0;
  for (size_t i = 0; i < moved.size(); ++i)
    left += moved[i] * y.values[i];
  for (size_t i = 0; i < returned.size(); ++i)
    right += x.values[i] * returned[i];
  EXPECT_NE(left, 0);
  EXPECT_DOUBLE_EQ(left, right);
}

TEST(Combine, IsTheTransposeOfDispatch) {
  for (const char *tokens : {"batch=2 seq=3 hidden=2", "choice=2 batch=2 seq=3 hidden=2"})
    for (bool isWeighted : {false, true})
      expectTransposed(tokens, isWeighted);
}

TEST(Combine, IgnoresInvalidSlots) {
  Program program(oneOp({places, places, tensorType(slots)}, "model.combine %x0, %x1, %x2", rows));
  EXPECT_EQ(program.first({program.argument(0, std::vector<double>(12, 3)),
                           program.argument(1, std::vector<double>(12, 0)), program.ramp(2, 1, 1)}),
            std::vector<double>(12, 0.0));
}

} // namespace
} // namespace espalier
