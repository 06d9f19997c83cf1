#include "compiler/import/model/build_states.h"

using namespace mlir;

namespace espalier {

// max(x, 0) + log(1 + exp(-|x|)), which does not overflow
Value softplus(PrimitiveBuilder &p, Value x) {
  Value positive = p.binary<model::MulOp>(x, p.unary<model::StepOp>(x));
  Value magnitude = p.binary<model::SubOp>(p.binary<model::AddOp>(positive, positive), x);
  Value power = p.unary<model::ExpOp>(p.unary<model::NegOp>(magnitude));
  return p.binary<model::AddOp>(positive, p.unary<model::LogOp>(p.binary<model::AddOp>(power, p.constant(1))));
}

FailureOr<Value> l2Norm(PrimitiveBuilder &p, const OpDescription &op, Value x, Type element) {
  auto dims = static_cast<int64_t>(number(op, "dims")), rank = cast<RankedTensorType>(x.getType()).getRank();
  if (dims < 1 || dims >= rank)
    return emitError(p.loc) << "l2_norm needs 1 to " << rank - 1 << " dims of " << x.getType() << ", got " << dims;
  Value squares = p.reduceLast<model::ReduceSumOp>(p.binary<model::MulOp>(x, x), static_cast<size_t>(dims));
  Value scale = p.unary<model::RsqrtOp>(p.binary<model::AddOp>(squares, p.constant(number(op, "epsilon"))));
  return p.binary<model::MulOp>(x, scale, element);
}

/// Creates the op if it is valid. An op with operands that do not fit is an error of the model file.
template <typename Op>
static FailureOr<Value> checked(PrimitiveBuilder &p, TypeRange types, ValueRange operands, bool delta = false) {
  OperationState state(p.loc, Op::getOperationName(), operands, types);
  if (delta)
    state.addAttribute("delta", p.b.getUnitAttr());
  auto op = cast<Op>(p.b.create(state));
  if (failed(op.verify()))
    return failure();
  return op->getResult(0);
}

FailureOr<Type> carriedType(PrimitiveBuilder &p, const OpDescription &op, ArrayRef<Value> in) {
  auto rankOf = [](Value x) { return cast<RankedTensorType>(x.getType()).getRank(); };
  bool isRecurrence = op.kind == "recurrence";
  if (rankOf(in[isRecurrence ? 2 : 0]) < 3 || rankOf(in[1]) < 1)
    return emitError(p.loc) << op.kind << " needs values [batch, seq, ..], got " << in[0].getType();
  return Type(isRecurrence ? model::stateType(in[1], in[2]) : model::haloType(in[0], in[1]));
}

FailureOr<Value> recurrence(PrimitiveBuilder &p, const OpDescription &op, ArrayRef<Value> in) {
  SmallVector<Value> operands(in);
  for (Value &gate : MutableArrayRef(operands).slice(3, 2))
    gate = p.converted(gate, p.f32);
  bool delta = number(op, "delta") != 0, isCarried = in.size() == 7;
  return isCarried ? checked<model::CarriedRecurrenceOp>(p, {in[2].getType(), in[6].getType()}, operands, delta)
                   : checked<model::RecurrenceOp>(p, in[2].getType(), operands, delta);
}

FailureOr<Value> causalConv(PrimitiveBuilder &p, ArrayRef<Value> in, Type element) {
  Type result = withElement(in[0].getType(), element);
  bool isCarried = in.size() == 4;
  return isCarried ? checked<model::CarriedConvOp>(p, {result, in[3].getType()}, in)
                   : checked<model::CausalConvOp>(p, result, in);
}

} // namespace espalier
