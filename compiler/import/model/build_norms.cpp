#include "compiler/import/model/build_norms.h"

using namespace mlir;

namespace espalier {

namespace {

/// Returns how many dimensions a norm reduces: those of its weight.
FailureOr<size_t> normalized(PrimitiveBuilder &p, const OpDescription &op, Value x, Value weight) {
  ArrayRef<StringAttr> all = dimNames(x.getType()), own = dimNames(weight.getType());
  if (own.size() >= all.size() || all.take_back(own.size()) != own)
    return emitError(p.loc) << op.kind << " needs a weight with the last dimensions of x, got " << weight.getType()
                            << " for " << x.getType();
  return own.size();
}

/// Returns 1 / the number of elements of the last `dims` dimensions.
Value inverseOf(PrimitiveBuilder &p, Value x, size_t dims) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(x.getType()).getShape().take_back(dims);
  return p.constant(1.0 / static_cast<double>(ShapedType::getNumElements(shape)));
}

/// Returns x less its mean over the last `dims` dimensions.
Value centered(PrimitiveBuilder &p, Value x, Value inverse, size_t dims) {
  return p.binary<model::SubOp>(x, p.binary<model::MulOp>(p.reduceLast<model::ReduceSumOp>(x, dims), inverse));
}

/// Returns x / sqrt(mean of the squares of x over the last `dims` dimensions + epsilon).
Value scaled(PrimitiveBuilder &p, const OpDescription &op, Value x, Value inverse, size_t dims, Type element = {}) {
  Value squares = p.reduceLast<model::ReduceSumOp>(p.binary<model::MulOp>(x, x), dims);
  Value mean = p.binary<model::MulOp>(squares, inverse);
  Value scale = p.unary<model::RsqrtOp>(p.binary<model::AddOp>(mean, p.constant(number(op, "epsilon"))));
  return p.binary<model::MulOp>(x, scale, element);
}

/// Returns weight + offset.
Value scaleOf(PrimitiveBuilder &p, const OpDescription &op, Value weight) {
  double offset = number(op, "offset");
  return offset == 0 ? weight : p.binary<model::AddOp>(weight, p.constant(offset));
}

} // namespace

FailureOr<Value> layerNorm(PrimitiveBuilder &p, const OpDescription &op, ArrayRef<Value> in, Type element) {
  FailureOr<size_t> dims = normalized(p, op, in[0], in[1]);
  if (failed(dims))
    return failure();
  Value inverse = inverseOf(p, in[0], *dims);
  Value normal = scaled(p, op, centered(p, in[0], inverse, *dims), inverse, *dims);
  if (in.size() == 2)
    return p.binary<model::MulOp>(normal, scaleOf(p, op, in[1]), element);
  return p.binary<model::AddOp>(p.binary<model::MulOp>(normal, scaleOf(p, op, in[1])), in[2], element);
}

FailureOr<Value> rmsNorm(PrimitiveBuilder &p, const OpDescription &op, ArrayRef<Value> in, Type element) {
  FailureOr<size_t> dims = normalized(p, op, in[0], in[1]);
  if (failed(dims))
    return failure();
  Value normal = scaled(p, op, in[0], inverseOf(p, in[0], *dims), *dims);
  return p.binary<model::MulOp>(normal, scaleOf(p, op, in[1]), element);
}

FailureOr<Value> plainNorm(PrimitiveBuilder &p, const OpDescription &op, ArrayRef<Value> in, Type element) {
  Value x = in[0];
  Value inverse = inverseOf(p, x, 1);
  return scaled(p, op, op.kind == "plain_layer_norm" ? centered(p, x, inverse, 1) : x, inverse, 1, element);
}

} // namespace espalier
