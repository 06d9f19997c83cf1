// Compares the derivative rule of each op with finite differences. All dimensions of a case have different sizes.
#include "test/compiler/autodiff/finite_differences.h"

namespace espalier {
namespace {

struct UnaryCase {
  const char *op;
  double low, high;
};

class UnaryDerivative : public testing::TestWithParam<UnaryCase> {};

TEST_P(UnaryDerivative, AgreesWithDifferences) {
  auto [op, low, high] = GetParam();
  checkDerivative({{{"a=2 b=3", low, high}}, "%y = model." + std::string(op) + " %x0 : ($0) -> $y", "a=2 b=3"});
}

INSTANTIATE_TEST_SUITE_P(AllOps, UnaryDerivative,
                         testing::Values(UnaryCase{"neg", -1, 1}, UnaryCase{"exp", -1, 1}, UnaryCase{"log", 0.5, 2},
                                         UnaryCase{"tanh", -2, 2}, UnaryCase{"erf", -2, 2}, UnaryCase{"gelu", -3, 3},
                                         UnaryCase{"logistic", -3, 3}, UnaryCase{"rsqrt", 0.5, 2},
                                         UnaryCase{"sqrt", 0.5, 2}, UnaryCase{"step", 0.5, 2},
                                         UnaryCase{"step", -2, -0.5}, UnaryCase{"convert", -1, 1}),
                         [](const auto &info) {
                           return std::string(info.param.op) + (info.param.high < 0 ? "_negative" : "");
                         });

struct BinaryCase {
  const char *name, *a, *b, *result;
};

class BinaryDerivative : public testing::TestWithParam<std::tuple<const char *, BinaryCase>> {};

TEST_P(BinaryDerivative, AgreesWithDifferences) {
  auto [op, shapes] = GetParam();
  checkDerivative({{{shapes.a, 0.5, 2}, {shapes.b, 0.5, 2}},
                   "%y = model." + std::string(op) + " %x0, %x1 : ($0, $1) -> $y",
                   shapes.result});
}

INSTANTIATE_TEST_SUITE_P(
    AllOps, BinaryDerivative,
    testing::Combine(testing::Values("add", "sub", "mul", "div"),
                     testing::Values(BinaryCase{"same", "a=2 b=3", "a=2 b=3", "a=2 b=3"},
                                     BinaryCase{"inner_vector", "a=2 b=3", "b=3", "a=2 b=3"},
                                     BinaryCase{"outer_vector", "a=2", "a=2 b=3 c=4", "a=2 b=3 c=4"},
                                     BinaryCase{"middle_vector", "a=2 b=3 c=4", "b=3", "a=2 b=3 c=4"},
                                     BinaryCase{"scalar", "", "a=2 b=3", "a=2 b=3"},
                                     BinaryCase{"outer_product", "a=2", "b=3", "a=2 b=3"},
                                     BinaryCase{"turned_outer_product", "b=3", "a=2", "a=2 b=3"},
                                     BinaryCase{"both_repeated", "a=2", "a=2", "a=2 b=3"})),
    [](const auto &info) { return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name; });

TEST(Derivative, OfOneValueUsedTwice) {
  checkDerivative({{{"a=2 b=3"}}, "%y = model.mul %x0, %x0 : ($0, $0) -> $y", "a=2 b=3"});
}

TEST(Derivative, OfSelectFollowsTheChosenPart) {
  checkDerivative({{{"a=2 b=3", -1, -0.1}, {"b=3"}, {"a=2 b=3"}},
                   "%y = model.select %x0, %x1, %x2 : ($0, $1, $2) -> $y",
                   "a=2 b=3"});
  checkDerivative(
      {{{"a=2", 0.1, 1}, {"b=3"}, {""}}, "%y = model.select %x0, %x1, %x2 : ($0, $1, $2) -> $y", "a=2 b=3"});
}

TEST(Derivative, OfBroadcast) { checkDerivative({{{"b=3"}}, "%y = model.broadcast %x0 : ($0) -> $y", "a=2 b=3 c=4"}); }

TEST(Derivative, OfReduceSum) {
  checkDerivative({{{"a=2 b=3 c=4"}}, "%y = model.reduce_sum %x0 : ($0) -> $y", "a=2 c=4"});
  checkDerivative({{{"a=2 b=3"}}, "%y = model.reduce_sum %x0 : ($0) -> $y", ""});
}

TEST(Derivative, OfContract) {
  checkDerivative({{{"batch=2 seq=3 hidden=4"}, {"hidden=4 ffn=5"}},
                   "%y = model.contract %x0, %x1 : ($0, $1) -> $y",
                   "batch=2 seq=3 ffn=5"});
  // A weight with heads as a separate dimension; the product contracts two dimensions.
  checkDerivative({{{"batch=2 heads=3 head_dim=4"}, {"heads=3 head_dim=4 hidden=5"}},
                   "%y = model.contract %x0, %x1 : ($0, $1) -> $y",
                   "batch=2 hidden=5"});
  // One dimension is in both operands and the result, and the result has another order of dimensions.
  checkDerivative({{{"batch=2 seq=3 hidden=4"}, {"batch=2 hidden=4 ffn=5"}},
                   "%y = model.contract %x0, %x1 : ($0, $1) -> $y",
                   "ffn=5 seq=3 batch=2"});
}

TEST(Derivative, OfContractWithAConstantCotangent) {
  std::string product = tensorType("seq=3 ffn=5");
  checkDerivative(
      {{{"seq=3 hidden=4"}, {"hidden=4 ffn=5"}},
       "%p = model.contract %x0, %x1 : ($0, $1) -> " + product + "\n%y = model.reduce_sum %p : (" + product + ") -> $y",
       "ffn=5"});
}

TEST(Derivative, OfEmbed) {
  checkDerivative({{{"vocab=5 hidden=3"}, {"batch=2 seq=4", 0, 0, {4, 0, 1, 4, 4, 2, 0, 0}}},
                   "%y = model.embed %x0, %x1 : ($0, $1) -> $y",
                   "batch=2 seq=4 hidden=3"});
}

TEST(Derivative, OfPick) {
  checkDerivative(
      {{{"seq=4 vocab=5"}, {"seq=4", 0, 0, {4, 0, -1, 7}}}, "%y = model.pick %x0, %x1 : ($0, $1) -> $y", "seq=4"});
}

TEST(Derivative, OfPickWithAConstantCotangent) {
  std::string picked = tensorType("seq=4");
  checkDerivative(
      {{{"seq=4 vocab=5"}, {"seq=4", 0, 0, {4, 0, 1, 3}}},
       "%p = model.pick %x0, %x1 : ($0, $1) -> " + picked + "\n%y = model.reduce_sum %p : (" + picked + ") -> $y",
       ""});
}

TEST(Derivative, OfMaskTail) {
  checkDerivative(
      {{{"seq=4 vocab=5"}}, "%y = model.mask_tail %x0 {valid = 3, fill = -2.0 : f64} : ($0) -> $y", "seq=4 vocab=5"});
}

TEST(Derivative, OfDropout) {
  checkDerivative({{{"batch=2 seq=3 hidden=4"}},
                   "%y = model.dropout %x0 {rate = 0.4 : f64, id = 1 : i64} : ($0) -> $y",
                   "batch=2 seq=3 hidden=4"});
}

TEST(Derivative, OfRope) {
  checkDerivative({{{"batch=1 seq=3 heads=2 head_dim=4"}, {"batch=1 seq=3", 0, 0, {0, 1, 5}}},
                   "%y = model.rope %x0, %x1 {theta = 50.0 : f64} : ($0, $1) -> $y",
                   "batch=1 seq=3 heads=2 head_dim=4"});
  checkDerivative({{{"seq=3 head_dim=4"}, {"seq=3", 0, 0, {0, 1, 5}}},
                   "%y = model.rope %x0, %x1 {theta = 50.0 : f64, inverse} : ($0, $1) -> $y",
                   "seq=3 head_dim=4"});
}

TEST(Derivative, OfPartOfAHeadThatIsScaled) {
  for (std::string form : {"", ", interleaved"})
    checkDerivative({{{"seq=3 head_dim=6"}, {"seq=3", 0, 0, {0, 1, 5}}},
                     "%y = model.rope %x0, %x1 {theta = 50.0 : f64, rotary = 4 : i64, factor = 3.0 : f64, slow = 2.0 : "
                     "f64, fast = 0.0 : f64, amplitude = 1.2 : f64" +
                         form + "} : ($0, $1) -> $y",
                     "seq=3 head_dim=6"});
}

void checkAttention(const std::string &group, const std::string &attributes) {
  std::string heads = "batch=2 seq=5 kv_heads=3 ";
  checkDerivative({{{heads + group + "head_dim=4"}, {heads + "head_dim=4"}, {heads + "head_dim=4"}},
                   "%y, %l = model.attention %x0, %x1, %x2 {scale = 0.7 : f64, id = 2 : i64, " + attributes +
                       "} : ($0, $1, $2) -> ($y, " + tensorType(heads + group) + ")",
                   heads + group + "head_dim=4"});
}

TEST(Derivative, OfAttention) { checkAttention("", "rate = 0.0 : f64"); }
TEST(Derivative, OfCausalAttention) { checkAttention("", "rate = 0.0 : f64, causal"); }
TEST(Derivative, OfGroupedAttention) { checkAttention("group=6 ", "rate = 0.0 : f64, causal"); }
TEST(Derivative, OfAttentionWithDropout) { checkAttention("group=6 ", "rate = 0.3 : f64, causal"); }

TEST(Derivative, OfAttentionInAWindow) { checkAttention("group=6 ", "rate = 0.3 : f64, causal, window = 2 : i64"); }
TEST(Derivative, OfAttentionInDocuments) {
  std::string heads = "batch=2 seq=5 kv_heads=3 ";
  checkDerivative({{{heads + "head_dim=4"},
                    {heads + "head_dim=4"},
                    {heads + "head_dim=4"},
                    {"batch=2 seq=5", 0, 0, {0, 0, 2, 2, 2, 0, 1, 1, 1, 4}}},
                   "%y, %l = model.attention %x0, %x1, %x2, %x3 {scale = 0.7 : f64, id = 2 : i64, rate = 0.3 : f64, "
                   "causal} : ($0, $1, $2, $3) -> ($y, " +
                       tensorType(heads) + ")",
                   heads + "head_dim=4"});
}
TEST(Derivative, OfAttentionWithSinks) {
  for (std::string group : {"", "group=3 "}) {
    std::string keys = "batch=1 seq=4 kv_heads=2 head_dim=4",
                queries = "batch=1 seq=4 kv_heads=2 " + group + "head_dim=4";
    checkDerivative({{{queries}, {keys}, {keys}, {"kv_heads=2 " + group}},
                     "%y, %l = model.sink_attention %x0, %x1, %x2, %x3 {scale = 0.7 : f64, id = 2 : i64, rate = 0.3 : "
                     "f64, causal, window = 3 : i64} : ($0, $1, $2, $3) -> ($y, " +
                         tensorType("batch=1 seq=4 kv_heads=2 " + group) + ")",
                     queries});
  }
}
TEST(Derivative, OfAttentionWithCappedScores) {
  checkAttention("", "rate = 0.0 : f64, causal, window = 3 : i64, soft_cap = 0.8 : f64");
}

/// The cotangent and the operand lack different dimensions, so an error in the order of dimensions would show.
TEST(Derivative, OfAProductThatIsThenSummed) {
  std::string whole = tensorType("a=2 b=3");
  for (const char *op : {"add", "sub", "mul", "div"})
    checkDerivative({{{"a=2", 0.5, 2}, {"a=2 b=3", 0.5, 2}},
                     "%p = model." + std::string(op) + " %x0, %x1 : ($0, $1) -> " + whole +
                         "\n%y = model.reduce_sum %p : (" + whole + ") -> $y",
                     "b=3"});
}

/// The two uses give cotangents that are constant along different dimensions.
TEST(Derivative, OfAValueSummedAlongEachDimension) {
  std::string product = tensorType("a=2 b=3"), a = tensorType("a=2"), b = tensorType("b=3");
  checkDerivative({{{"a=2 b=3"}},
                   "%t = model.reduce_sum %x0 : ($0) -> " + a + "\n%s = model.reduce_sum %x0 : ($0) -> " + b +
                       "\n%y = model.mul %s, %t : (" + b + ", " + a + ") -> $y",
                   "a=2 b=3"});
  checkDerivative({{{"a=2 b=3"}},
                   "%s = model.reduce_sum %x0 : ($0) -> " + b + "\n%t = model.reduce_sum %x0 : ($0) -> " + a +
                       "\n%y = model.mul %s, %t : (" + b + ", " + a + ") -> $y",
                   "a=2 b=3"});
}

/// Both operands of the op are the same value, and their contributions lack different dimensions.
TEST(Derivative, OfSelectWithASummedResult) {
  std::string whole = tensorType("a=2 b=3");
  checkDerivative({{{"a=2", 0.1, 1}, {"a=2 b=3"}, {"b=3"}},
                   "%p = model.select %x0, %x1, %x2 : ($0, $1, $2) -> " + whole + "\n%y = model.reduce_sum %p : (" +
                       whole + ") -> $y",
                   "b=3"});
}

/// Batched products: one product per expert, over the expert's slots of all samples.
TEST(Derivative, OfContractPerExpert) {
  Segment segment{{{"expert=2 batch=3 capacity=4 hidden=5"}, {"expert=2 hidden=5 ffn=6"}},
                  "%y = model.contract %x0, %x1 : ($0, $1) -> $y",
                  "expert=2 batch=3 capacity=4 ffn=6"};
  segment.parameters = {1};
  checkDerivative(segment);
}

const Input expertIds{"choice=2 batch=1 seq=3", 0, 0, {0, 1, 0, /**/ 1, 0, 1}},
    expertSlots{"choice=2 batch=1 seq=3", 0, 0, {0, 0, 1, /**/ 1, -1, 2}};

TEST(Derivative, OfDispatchAndCombine) {
  const std::string experts = "expert=2 batch=1 capacity=4 hidden=5";
  for (const std::string tokens : {"batch=1 seq=3 hidden=5", "choice=2 batch=1 seq=3 hidden=5"})
    for (bool isWeighted : {false, true})
      for (bool isDispatch : {true, false}) {
        Segment segment{{expertIds, expertSlots, {isDispatch ? tokens : experts}}, "", isDispatch ? experts : tokens};
        if (isWeighted)
          segment.inputs.push_back({"choice=2 batch=1 seq=3"});
        segment.body = std::string("%y = model.") + (isDispatch ? "dispatch" : "combine") + " %x0, %x1, %x2" +
                       (isWeighted ? ", %x3 : ($0, $1, $2, $3) -> $y" : " : ($0, $1, $2) -> $y");
        checkDerivative(segment);
      }
}

/// Scores determine slots, which small changes of the scores do not change, and weights, which they do.
TEST(Derivative, OfALayerOfExperts) {
  std::string places = tensorType("choice=2 batch=1 seq=3", "i32"), wide = "choice=2 batch=1 seq=3 router=4",
              weights = tensorType("choice=2 batch=1 seq=3"),
              experts = tensorType("expert=4 batch=1 capacity=2 hidden=5");
  checkDerivative({{{"batch=1 seq=3 router=4"}, {"batch=1 seq=3 hidden=5"}, {"expert=4 hidden=5 ffn=2"}},
                   "%ids, %slots = model.route %x0 {capacity = 2 : i64} : ($0) -> (" + places + ", " + places +
                       ")\n%e = model.exp %x0 : ($0) -> $0\n%p = model.broadcast %e : ($0) -> " + tensorType(wide) +
                       "\n%w = model.pick %p, %ids : (" + tensorType(wide) + ", " + places + ") -> " + weights +
                       "\n%x = model.dispatch %ids, %slots, %x1 : (" + places + ", " + places + ", $1) -> " + experts +
                       "\n%t = model.tanh %x : (" + experts + ") -> " + experts + "\n%u = model.contract %t, %x2 : (" +
                       experts + ", $2) -> " + tensorType("expert=4 batch=1 capacity=2 ffn=2") +
                       "\n%y = model.combine %ids, %slots, %u, %w : (" + places + ", " + places + ", " +
                       tensorType("expert=4 batch=1 capacity=2 ffn=2") + ", " + weights + ") -> $y",
                   "batch=1 seq=3 ffn=2"});
}

TEST(Derivative, OfParametersGoesToAccumulators) {
  Segment segment{{{"batch=2 seq=3 hidden=4"}, {"hidden=4 ffn=5"}},
                  "%y = model.contract %x0, %x1 : ($0, $1) -> $y",
                  "batch=2 seq=3 ffn=5"};
  segment.parameters = {1};
  checkDerivative(segment);
}

TEST(Derivative, OfAnUnusedArgumentIsZero) {
  checkDerivative({{{"a=2"}, {"a=2 b=3"}}, "%y = model.exp %x0 : ($0) -> $y", "a=2"});
}

TEST(Derivative, OfAConstantFactor) {
  checkDerivative({{{"a=2 b=3"}},
                   "%c = model.constant 2.5 : tensor<f32>\n%y = model.mul %x0, %c : ($0, tensor<f32>) -> $y",
                   "a=2 b=3"});
}

/// Streams are bf16 and parameters are f32. Each gradient has the type of its value. All values are exact in bf16, so
/// finite differences still work.
Segment narrow(Segment segment) {
  segment.element = "bf16";
  return segment;
}

TEST(DerivativeInBf16, OfAProductWithAConvertedParameter) {
  std::string weight = tensorType("hidden=4 ffn=5", "bf16");
  Segment segment{{{"batch=2 seq=3 hidden=4"}, {"hidden=4 ffn=5"}},
                  "%w = model.convert %x1 : ($1) -> " + weight + "\n%y = model.contract %x0, %w : ($0, " + weight +
                      ") -> $y",
                  "batch=2 seq=3 ffn=5"};
  segment.parameters = {1};
  checkDerivative(narrow(segment));
}

TEST(DerivativeInBf16, OfElementwiseOpsWithF32Between) {
  std::string wide = tensorType("a=2 b=3");
  checkDerivative(
      narrow({{{"a=2 b=3"}, {"b=3"}},
              "%e = model.exp %x0 : ($0) -> " + wide + "\n%y = model.mul %e, %x1 : (" + wide + ", $1) -> $y",
              "a=2 b=3"}));
}

TEST(DerivativeInBf16, OfIndexingOps) {
  checkDerivative(narrow({{{"vocab=5 hidden=3"}, {"seq=4", 0, 0, {4, 0, 1, 4}}},
                          "%y = model.embed %x0, %x1 : ($0, $1) -> $y",
                          "seq=4 hidden=3"}));
  checkDerivative(narrow(
      {{{"seq=4 vocab=5"}, {"seq=4", 0, 0, {4, 0, 1, 3}}}, "%y = model.pick %x0, %x1 : ($0, $1) -> $y", "seq=4"}));
  checkDerivative(narrow(
      {{{"seq=4 vocab=5"}}, "%y = model.mask_tail %x0 {valid = 3, fill = -2.0 : f64} : ($0) -> $y", "seq=4 vocab=5"}));
  checkDerivative(narrow({{{"seq=3 head_dim=4"}, {"seq=3", 0, 0, {0, 1, 5}}},
                          "%y = model.rope %x0, %x1 {theta = 50.0 : f64} : ($0, $1) -> $y",
                          "seq=3 head_dim=4"}));
}

TEST(DerivativeInBf16, OfAttentionThenDropout) {
  std::string heads = "batch=2 seq=5 kv_heads=3 ", q = tensorType(heads + "head_dim=4", "bf16");
  checkDerivative(narrow({{{heads + "head_dim=4"}, {heads + "head_dim=4"}, {heads + "head_dim=4"}},
                          "%o, %l = model.attention %x0, %x1, %x2 {scale = 0.7 : f64, rate = 0.1 : f64, id = 2 : i64} "
                          ": ($0, $1, $2) -> (" +
                              q + ", " + tensorType(heads) +
                              ")\n%y = model.dropout %o {rate = 0.5 : f64, id = 3 : " + "i64} : (" + q + ") -> $y",
                          heads + "head_dim=4"}));
}

} // namespace
} // namespace espalier
