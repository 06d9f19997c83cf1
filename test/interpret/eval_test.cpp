// Tests the values of element-wise ops, reductions, products and accumulation.
#include "test/interpret/program.h"

#include <cmath>

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string row = tensorType("n=3"), scalar = tensorType("");

double unary(const std::string &op, double x) {
  Program program("func.func @f(%x: tensor<f32>) -> tensor<f32> {\n %y = model." + op +
                  " %x : (tensor<f32>) -> tensor<f32>\n return %y : tensor<f32>\n}");
  EvalContext context;
  context.isExact = true;
  return program.first({program.argument(0, {x})}, context).at(0);
}

TEST(Evaluate, UnaryOps) {
  EXPECT_EQ(unary("neg", 2), -2);
  EXPECT_DOUBLE_EQ(unary("exp", 1), M_E);
  EXPECT_DOUBLE_EQ(unary("log", M_E), 1);
  EXPECT_DOUBLE_EQ(unary("tanh", 0.5), std::tanh(0.5));
  EXPECT_NEAR(unary("gelu", 0.5), 0.3457140, 1e-6);
  EXPECT_NEAR(unary("erf", 0.5), 0.5204998778, 1e-10);
  EXPECT_DOUBLE_EQ(unary("logistic", 0), 0.5);
  EXPECT_EQ(unary("rsqrt", 4), 0.5);
  EXPECT_EQ(unary("sqrt", 9), 3);
  EXPECT_EQ(unary("step", 0), 0);
  EXPECT_EQ(unary("step", 1e-30), 1);
}

TEST(Evaluate, ElementwiseOpsBroadcastByName) {
  // The vector is broadcast along the dimension that it lacks by name, and not by position from the right.
  Program program(oneOp({tensorType("a=2 b=3"), tensorType("a=2")}, "model.sub %x0, %x1", tensorType("a=2 b=3")));
  EXPECT_THAT(program.first({program.ramp(0, 0, 1), program.argument(1, {1, 10})}), ElementsAre(-1, 0, 1, -7, -6, -5));
}

TEST(Evaluate, OuterProductOfTwoBroadcasts) {
  Program program(oneOp({tensorType("a=2"), tensorType("b=3")}, "model.mul %x0, %x1", tensorType("a=2 b=3")));
  EXPECT_THAT(program.first({program.argument(0, {1, 10}), program.argument(1, {1, 2, 3})}),
              ElementsAre(1, 2, 3, 10, 20, 30));
}

TEST(Evaluate, SelectIgnoresTheOtherOperand) {
  Program program(oneOp({row, row, scalar}, "model.select %x0, %x1, %x2", row));
  EXPECT_THAT(program.first(
                  {program.argument(0, {1, 0, -1}), program.argument(1, {5, INFINITY, NAN}), program.argument(2, {7})}),
              ElementsAre(5, 7, 7));
}

TEST(Evaluate, ResultsAreRoundedToTheirStorageType) {
  std::string narrow = tensorType("n=3", "bf16");
  Program program(oneOp({row}, "model.convert %x0", narrow));
  EXPECT_THAT(program.first({program.argument(0, {1.00390625, 3.1415926, -1e-3})}),
              ElementsAre(1, 3.140625, -0.00099945068359375));
  EvalContext exact;
  exact.isExact = true;
  EXPECT_THAT(program.first({program.argument(0, {1.00390625, 3.1415926, -1e-3})}, exact),
              ElementsAre(1.00390625, 3.1415926, -1e-3));
}

TEST(Evaluate, BroadcastRepeatsAlongMissingDimensions) {
  Program program(oneOp({tensorType("b=3")}, "model.broadcast %x0", tensorType("a=2 b=3")));
  EXPECT_THAT(program.first({program.argument(0, {1, 2, 3})}), ElementsAre(1, 2, 3, 1, 2, 3));
}

TEST(Evaluate, ReductionsFoldTheDimensionsThatTheResultLacks) {
  std::vector<double> values = {1, 5, 2, 4, -7, 6};
  Program overRows(oneOp({tensorType("a=2 b=3")}, "model.reduce_sum %x0", tensorType("b=3")));
  EXPECT_THAT(overRows.first({overRows.argument(0, values)}), ElementsAre(5, -2, 8));
  Program overAll(oneOp({tensorType("a=2 b=3")}, "model.reduce_sum %x0", scalar));
  EXPECT_THAT(overAll.first({overAll.argument(0, values)}), ElementsAre(11));
  Program maximum(oneOp({tensorType("a=2 b=3")}, "model.reduce_max %x0", tensorType("a=2")));
  EXPECT_THAT(maximum.first({maximum.argument(0, values)}), ElementsAre(5, 6));
}

TEST(Evaluate, ContractIsAMatrixProductOverNames) {
  Program program(
      oneOp({tensorType("s=2 k=3"), tensorType("k=3 n=2")}, "model.contract %x0, %x1", tensorType("s=2 n=2")));
  EXPECT_THAT(program.first({program.ramp(0, 1, 1), program.ramp(1, 0, 1)}), ElementsAre(16, 22, 34, 49));
}

TEST(Evaluate, ContractKeepsABatchDimensionAndTransposes) {
  // result[n, b, s] = sum_k a[b, s, k] * w[b, k, n]
  Program program(oneOp({tensorType("b=2 s=1 k=2"), tensorType("b=2 k=2 n=3")}, "model.contract %x0, %x1",
                        tensorType("n=3 b=2 s=1")));
  EXPECT_THAT(program.first({program.argument(0, {1, 10, 2, 3}), program.ramp(1, 0, 1)}),
              ElementsAre(30, 39, 41, 44, 52, 49));
}

TEST(Evaluate, AccumulateOverwritesInTheFirstMicroBatch) {
  Program program(oneOp({row, row}, "model.accumulate %x0, %x1", row));
  std::vector<Tensor> arguments = {program.argument(0, {1, 2, 3}), program.argument(1, {10, 20, 30})};
  EXPECT_THAT(program.first(arguments), ElementsAre(10, 20, 30));
  EvalContext second;
  second.microBatch = 1;
  EXPECT_THAT(program.first(arguments, second), ElementsAre(11, 22, 33));
  Program always(oneOp({row, row}, "model.accumulate %x0, %x1 {always}", row));
  EXPECT_THAT(always.first({always.argument(0, {1, 2, 3}), always.argument(1, {10, 20, 30})}), ElementsAre(11, 22, 33));
}

TEST(Evaluate, SquaredNormIsWeighted) {
  Program program(oneOp({row}, "model.squared_norm %x0 {weight = 0.5 : f64}", scalar));
  EXPECT_THAT(program.first({program.argument(0, {1, 2, 3})}), ElementsAre(7));
  EXPECT_FALSE(std::isfinite(program.first({program.argument(0, {1, INFINITY, 3})}).at(0)));
}

TEST(Evaluate, ScalarsComeFromTheContext) {
  Program program("func.func @f() -> tensor<f32> {\n %y = model.scalar \"loss_scale\" : tensor<f32>\n"
                  " return %y : tensor<f32>\n}");
  EvalContext context;
  context.scalars["loss_scale"] = 8;
  EXPECT_THAT(program.first({}, context), ElementsAre(8));
  EXPECT_THAT(program.error({}), HasSubstr("model.scalar: no value for slot loss_scale at "));
}

TEST(Evaluate, CotangentComesFromTheContextOrIsOne) {
  Program program("func.func @f(%x: tensor<3xf32, #model.dims<n>>) -> tensor<3xf32, #model.dims<n>> {\n"
                  " %y = model.cotangent %x : (tensor<3xf32, #model.dims<n>>) -> tensor<3xf32, #model.dims<n>>\n"
                  " return %y : tensor<3xf32, #model.dims<n>>\n}");
  EXPECT_THAT(program.first({program.ramp(0, 0, 1)}), ElementsAre(1, 1, 1));
  EvalContext context;
  context.cotangent = program.argument(0, {4, 5, 6});
  EXPECT_THAT(program.first({program.ramp(0, 0, 1)}, context), ElementsAre(4, 5, 6));
  context.cotangent = Tensor(mlir::RankedTensorType::get({}, mlir::Float32Type::get(&program.context)));
  EXPECT_THAT(program.error({program.ramp(0, 0, 1)}, context), HasSubstr("cotangent has another type"));
}

TEST(Evaluate, RefusesWrongArguments) {
  Program program(oneOp({row}, "model.neg %x0", row));
  EXPECT_THAT(program.error({}), HasSubstr("f needs 1 arguments, got 0"));
  Tensor other(mlir::RankedTensorType::get({4}, mlir::Float32Type::get(&program.context)));
  EXPECT_THAT(program.error({other}),
              HasSubstr("f: argument 0 needs tensor<3xf32, #model.dims<n>>, got tensor<4xf32>"));
}

TEST(Evaluate, RefusesWhatItCannotEvaluate) {
  Program foreign("func.func @f() -> tensor<2xf32> {\n %y = arith.constant dense<1.0> : tensor<2xf32>\n"
                  " return %y : tensor<2xf32>\n}");
  EXPECT_THAT(foreign.error({}), HasSubstr("arith.constant has no evaluation"));
  std::string huge = tensorType("a=1000000 b=1000000");
  Program large(oneOp({scalar}, "model.broadcast %x0", huge));
  EXPECT_THAT(large.error({large.argument(0, {1})}), HasSubstr("tensor of more than"));
}

} // namespace
} // namespace espalier
