// Checks derivatives of parts of models, such as norms and attention built from primitive ops.
#include "test/compiler/autodiff/finite_differences.h"

namespace espalier {
namespace {

/// Builds a function body line by line: `emit("%y", "model.neg", {{"%x", type}}, type)`.
class Body {
public:
  using Operand = std::pair<std::string, std::string>;
  Operand emit(const std::string &name, const std::string &op, const std::vector<Operand> &operands,
               const std::string &type, const std::string &attributes = "") {
    std::string names, types;
    for (const Operand &operand : operands) {
      names += (names.empty() ? "" : ", ") + operand.first;
      types += (types.empty() ? "" : ", ") + operand.second;
    }
    text += name + " = model." + op + " " + names + attributes + " : (" + types + ") -> " + type + "\n";
    return {name, type};
  }
  Operand constant(const std::string &name, const std::string &value) {
    text += name + " = model.constant " + value + " : tensor<f32>\n";
    return {name, "tensor<f32>"};
  }
  std::string text;
};

TEST(CompositeDerivative, LayerNorm) {
  std::string x = tensorType("batch=2 seq=3 hidden=5"), row = tensorType("batch=2 seq=3"), h = tensorType("hidden=5");
  Body body;
  auto count = body.constant("%n", "0.2"), epsilon = body.constant("%e", "1.000000e-05");
  auto sum = body.emit("%sum", "reduce_sum", {{"%x0", x}}, row);
  auto mean = body.emit("%mean", "mul", {sum, count}, row);
  auto centered = body.emit("%c", "sub", {{"%x0", x}, mean}, x);
  auto square = body.emit("%sq", "mul", {centered, centered}, x);
  auto squares = body.emit("%ss", "reduce_sum", {square}, row);
  auto variance = body.emit("%var", "mul", {squares, count}, row);
  auto shifted = body.emit("%ve", "add", {variance, epsilon}, row);
  auto inverse = body.emit("%inv", "rsqrt", {shifted}, row);
  auto normal = body.emit("%norm", "mul", {centered, inverse}, x);
  auto scaled = body.emit("%scaled", "mul", {normal, {"%x1", h}}, x);
  body.emit("%y", "add", {scaled, {"%x2", h}}, x);
  Segment segment{{{"batch=2 seq=3 hidden=5"}, {"hidden=5"}, {"hidden=5"}}, body.text, "batch=2 seq=3 hidden=5"};
  segment.parameters = {1, 2};
  checkDerivative(segment);
}

TEST(CompositeDerivative, RootMeanSquareNorm) {
  std::string x = tensorType("seq=3 hidden=5"), row = tensorType("seq=3"), h = tensorType("hidden=5");
  Body body;
  auto count = body.constant("%n", "0.2"), epsilon = body.constant("%e", "1.000000e-06");
  auto square = body.emit("%sq", "mul", {{"%x0", x}, {"%x0", x}}, x);
  auto squares = body.emit("%ss", "reduce_sum", {square}, row);
  auto mean = body.emit("%ms", "mul", {squares, count}, row);
  auto shifted = body.emit("%me", "add", {mean, epsilon}, row);
  auto inverse = body.emit("%inv", "rsqrt", {shifted}, row);
  auto normal = body.emit("%norm", "mul", {{"%x0", x}, inverse}, x);
  body.emit("%y", "mul", {normal, {"%x1", h}}, x);
  checkDerivative({{{"seq=3 hidden=5"}, {"hidden=5"}}, body.text, "seq=3 hidden=5"});
}

TEST(CompositeDerivative, CrossEntropyWithMaskedTail) {
  std::string x = tensorType("seq=4 vocab=6"), row = tensorType("seq=4"), labels = tensorType("seq=4", "i32");
  Body body;
  auto masked = body.emit("%masked", "mask_tail", {{"%x0", x}}, x, " {valid = 5, fill = -1.0e+30 : f64}");
  auto largest = body.emit("%m", "reduce_max", {masked}, row);
  auto shifted = body.emit("%s", "sub", {masked, largest}, x);
  auto power = body.emit("%e", "exp", {shifted}, x);
  auto normalizer = body.emit("%z", "reduce_sum", {power}, row);
  auto logarithm = body.emit("%l", "log", {normalizer}, row);
  auto lse = body.emit("%lse", "add", {logarithm, largest}, row);
  auto picked = body.emit("%p", "pick", {masked, {"%x1", labels}}, row);
  auto loss = body.emit("%d", "sub", {lse, picked}, row);
  auto weighted = body.emit("%w", "mul", {loss, {"%x2", row}}, row);
  body.emit("%y", "reduce_sum", {weighted}, "tensor<f32>");
  checkDerivative({{{"seq=4 vocab=6", -2, 2}, {"seq=4", 0, 0, {4, 0, 2, 2}}, {"seq=4", 0, 1}}, body.text, ""});
}

TEST(CompositeDerivative, GeluAndGatedFeedForward) {
  std::string x = tensorType("seq=3 hidden=4"), f = tensorType("seq=3 ffn=5"), up = tensorType("hidden=4 ffn=5"),
              down = tensorType("ffn=5 hidden=4");
  Body body;
  auto gate = body.emit("%g", "contract", {{"%x0", x}, {"%x1", up}}, f);
  auto raised = body.emit("%u", "contract", {{"%x0", x}, {"%x2", up}}, f);
  auto sigmoid = body.emit("%sig", "logistic", {gate}, f);
  auto silu = body.emit("%silu", "mul", {gate, sigmoid}, f);
  auto product = body.emit("%prod", "mul", {silu, raised}, f);
  auto lowered = body.emit("%low", "contract", {product, {"%x3", down}}, x);
  body.emit("%y", "add", {lowered, {"%x0", x}}, x);
  Segment segment{
      {{"seq=3 hidden=4"}, {"hidden=4 ffn=5"}, {"hidden=4 ffn=5"}, {"ffn=5 hidden=4"}}, body.text, "seq=3 hidden=4"};
  segment.parameters = {1, 2, 3};
  checkDerivative(segment);
}

/// Keys have columns of their own head and rotary columns that all heads share; values have another length.
TEST(CompositeDerivative, LatentAttention) {
  std::string q = tensorType("batch=1 seq=4 heads=2 head_dim=6"), k = tensorType("batch=1 seq=4 heads=2 nope=4"),
              shared = tensorType("batch=1 seq=4 rope=2"), v = tensorType("batch=1 seq=4 heads=2 value_dim=3"),
              lse = tensorType("batch=1 seq=4 heads=2"), positions = tensorType("batch=1 seq=4", "i32");
  Body body;
  std::pair<std::string, std::string> places{"%x4", positions};
  auto turnedQ = body.emit("%rq", "rope", {{"%x0", q}, places}, q,
                           " {theta = 100.0 : f64, rotary = 2 : i64, first = 4 : i64, interleaved}");
  auto turned = body.emit("%rk", "rope", {{"%x2", shared}, places}, shared, " {theta = 100.0 : f64, interleaved}");
  auto keys = body.emit("%k", "concat", {{"%x1", k}, turned}, q);
  body.text += "%y, %l = model.attention %rq, %k, %x3 {scale = 0.5 : f64, rate = 0.0 : f64, id = 0 : i64, causal} : (" +
               q + ", " + q + ", " + v + ") -> (" + v + ", " + lse + ")\n";
  checkDerivative({{{"batch=1 seq=4 heads=2 head_dim=6"},
                    {"batch=1 seq=4 heads=2 nope=4"},
                    {"batch=1 seq=4 rope=2"},
                    {"batch=1 seq=4 heads=2 value_dim=3"},
                    {"batch=1 seq=4", 0, 0, {0, 1, 2, 3}}},
                   body.text,
                   "batch=1 seq=4 heads=2 value_dim=3"});
}

TEST(CompositeDerivative, SelfAttentionOfOneStream) {
  std::string x = tensorType("batch=1 seq=5 hidden=4"), heads = tensorType("batch=1 seq=5 heads=2 head_dim=6"),
              wide = tensorType("hidden=4 heads=2 head_dim=6"), back = tensorType("heads=2 head_dim=6 hidden=4"),
              lse = tensorType("batch=1 seq=5 heads=2"), positions = tensorType("batch=1 seq=5", "i32");
  Body body;
  auto q = body.emit("%q", "contract", {{"%x0", x}, {"%x1", wide}}, heads);
  auto k = body.emit("%k", "contract", {{"%x0", x}, {"%x2", wide}}, heads);
  auto v = body.emit("%v", "contract", {{"%x0", x}, {"%x3", wide}}, heads);
  auto turnedQ = body.emit("%rq", "rope", {q, {"%x5", positions}}, heads, " {theta = 100.0 : f64}");
  auto turnedK = body.emit("%rk", "rope", {k, {"%x5", positions}}, heads, " {theta = 100.0 : f64}");
  body.text += "%o, %l = model.attention %rq, %rk, %v {scale = 0.5 : f64, rate = 0.0 : f64, id = 0 : i64, causal} : (" +
               heads + ", " + heads + ", " + heads + ") -> (" + heads + ", " + lse + ")\n";
  body.emit("%y", "contract", {{"%o", heads}, {"%x4", back}}, x);
  checkDerivative({{{"batch=1 seq=5 hidden=4"},
                    {"hidden=4 heads=2 head_dim=6"},
                    {"hidden=4 heads=2 head_dim=6"},
                    {"hidden=4 heads=2 head_dim=6"},
                    {"heads=2 head_dim=6 hidden=4"},
                    {"batch=1 seq=5", 0, 0, {0, 1, 2, 3, 4}}},
                   body.text,
                   "batch=1 seq=5 hidden=4"});
}

} // namespace
} // namespace espalier
