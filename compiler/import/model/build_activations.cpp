#include "compiler/import/model/build_activations.h"

#include "compiler/import/model/build_states.h"

#include <cmath>

using namespace mlir;

namespace espalier {

FailureOr<Value> activation(PrimitiveBuilder &p, const OpDescription &op, ArrayRef<Value> in, Type element) {
  Value x = in[0];
  const std::string &kind = op.strings.at("kind");
  auto times = [&](Value a, double factor) { return p.binary<model::MulOp>(a, p.constant(factor)); };
  double alpha = number(op, "alpha");
  if (alpha != 1 && kind != "silu")
    return emitError(p.loc) << "alpha " << alpha << " is of the activation silu, got " << kind;
  if (kind == "relu")
    return p.binary<model::MulOp>(x, p.unary<model::StepOp>(x), element);
  if (kind == "relu2") {
    Value positive = p.binary<model::MulOp>(x, p.unary<model::StepOp>(x));
    return p.binary<model::MulOp>(positive, positive, element);
  }
  if (kind == "silu")
    return p.binary<model::MulOp>(x, p.unary<model::LogisticOp>(alpha == 1 ? x : times(x, alpha)), element);
  if (kind == "sigmoid")
    return p.unary<model::LogisticOp>(x, element);
  if (kind == "fast_gelu") // x sigmoid(1.702 x)
    return p.binary<model::MulOp>(x, p.unary<model::LogisticOp>(times(x, 1.702)), element);
  if (kind == "gelu") { // x/2 (1 + erf(x / sqrt 2))
    Value erf = p.unary<model::ErfOp>(times(x, std::sqrt(0.5)));
    return p.binary<model::MulOp>(times(x, 0.5), p.binary<model::AddOp>(erf, p.constant(1)), element);
  }
  if (kind == "gelu_tanh")
    return p.unary<model::GeluOp>(x, element);
  return emitError(p.loc) << "unknown activation '" << kind
                          << "'; known are gelu, gelu_tanh, fast_gelu, silu, relu, relu2, sigmoid";
}

FailureOr<Value> xielu(PrimitiveBuilder &p, const OpDescription &, ArrayRef<Value> in, Type element) {
  Value x = in[0], beta = in[3], eps = in[4];
  auto select = [&](Value condition, Value a, Value b) -> Value {
    return p.b.create<model::SelectOp>(p.loc, withElement(x.getType(), p.f32), condition, a, b);
  };
  // exp(t) - 1 = 2 h / (1 - h) with h = tanh(t / 2), which loses no digits near 0.
  Value limited = select(p.binary<model::SubOp>(eps, x), x, eps);
  Value h = p.unary<model::TanhOp>(p.binary<model::MulOp>(limited, p.constant(0.5)));
  Value power = p.binary<model::DivOp>(p.binary<model::AddOp>(h, h), p.binary<model::SubOp>(p.constant(1), h));
  Value below = p.binary<model::AddOp>(beta, softplus(p, in[2]));
  Value negative = p.binary<model::MulOp>(p.binary<model::SubOp>(power, x), below);
  Value positive = p.binary<model::MulOp>(p.binary<model::MulOp>(x, x), softplus(p, in[1]));
  return p.binary<model::AddOp>(select(x, positive, negative), p.binary<model::MulOp>(x, beta), element);
}

FailureOr<Value> softCap(PrimitiveBuilder &p, const OpDescription &op, ArrayRef<Value> in, Type element) {
  double cap = number(op, "cap");
  if (cap <= 0)
    return in[0];
  Value part = p.unary<model::TanhOp>(p.binary<model::MulOp>(in[0], p.constant(1 / cap)));
  return p.binary<model::MulOp>(part, p.constant(cap), element);
}

FailureOr<Value> clamp(PrimitiveBuilder &p, const OpDescription &op, ArrayRef<Value> in, Type element) {
  Value x = in[0];
  auto bound = [&](double value, bool isAbove) {
    Value limit = p.constant(value);
    Value room = isAbove ? p.binary<model::SubOp>(limit, x) : p.binary<model::SubOp>(x, limit);
    x = p.b.create<model::SelectOp>(p.loc, withElement(x.getType(), element), room, x, limit);
  };
  bound(number(op, "most"), /*isAbove=*/true);
  if (double least = number(op, "least"); std::isfinite(least))
    bound(least, /*isAbove=*/false);
  return x;
}

FailureOr<Value> shift(PrimitiveBuilder &p, const OpDescription &op, ArrayRef<Value> in, Type element) {
  return p.binary<model::AddOp>(in[0], p.constant(number(op, "by")), element);
}

} // namespace espalier
