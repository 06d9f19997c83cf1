// Lowers recurrences, causal convolutions and their derivatives to library calls.
#include "compiler/codegen/program_builder.h"

#include "dialects/model/dialect.h"

using namespace mlir;

namespace espalier::codegen {

static int64_t elementsBetween(RankedTensorType type, int64_t first, int64_t end) {
  int64_t product = 1;
  for (int64_t d = first; d < end; ++d)
    product *= type.getDimSize(d);
  return product;
}

/// Returns the sizes of a recurrence or its derivative.
static SmallVector<int64_t> recurrenceSizes(Operation *op) {
  auto typeOf = [&](unsigned operand) { return cast<RankedTensorType>(op->getOperand(operand).getType()); };
  RankedTensorType q = typeOf(0), v = typeOf(2);
  SmallVector<int64_t> sizes(q.getShape().take_front(3));
  llvm::append_values(sizes, elementsBetween(v, 3, v.getRank() - 1), q.getShape().back(), v.getShape().back(),
                      model::recurrenceChunk(op), typeOf(3).getRank() > typeOf(4).getRank() ? 1 : 0,
                      op->hasAttr("delta") ? 1 : 0);
  if (isa<model::CarriedRecurrenceOp>(op))
    sizes.push_back(1);
  return sizes;
}

/// Returns the sizes of a convolution or of the derivative of its weight.
static SmallVector<int64_t> convolutionSizes(Operation *op) {
  auto x = cast<RankedTensorType>(op->getOperand(0).getType());
  bool isGradient = isa<model::CausalConvGradOp>(op);
  auto weight = cast<RankedTensorType>((isGradient ? op->getResult(0) : op->getOperand(1)).getType());
  SmallVector<int64_t> sizes = {x.getDimSize(0), x.getDimSize(1), elementsBetween(x, 2, x.getRank()),
                                weight.getShape().back()};
  if (op->hasAttr("transposed"))
    sizes.push_back(1);
  if (isa<model::CarriedConvOp>(op))
    llvm::append_values(sizes, 0, 1, weight.getShape().back() - 1);
  return sizes;
}

LogicalResult ProgramBuilder::lowerState(Operation *op) {
  if (!target.isHost())
    return op->emitOpError("has no kernel for ") << target.name() << " yet; choose a cluster of CPUs";
  bool isRecurrence = isa<model::RecurrenceOp, model::RecurrenceGradOp, model::CarriedRecurrenceOp>(op);
  bool isCarried = isa<model::CarriedRecurrenceOp, model::CarriedConvOp>(op);
  SmallVector<Value> operands(op->getOperands());
  if (isCarried && place(operands.pop_back_val()) != place(op->getResult(1)))
    return op->emitOpError("needs a carried value that is an argument and a result of its function, nothing else");
  Call call;
  call.function = isRecurrence ? "recurrence" : "causal_conv";
  if (op->getName().getStringRef().ends_with("_grad"))
    call.function = isRecurrence ? "recurrence_gradient" : "causal_conv_gradient";
  call.sizes = isRecurrence ? recurrenceSizes(op) : convolutionSizes(op);
  for (Value operand : operands)
    call.add(place(operand), cast<RankedTensorType>(operand.getType()).getElementType());
  bool isOfWeight = isa<model::CausalConvGradOp>(op); // the call adds to the accumulator
  for (Value result : op->getResults()) {
    exec::BufferAttr target = isOfWeight ? destination(result, call.flags) : place(result);
    call.add(target, isOfWeight ? target.getElement() : cast<RankedTensorType>(result.getType()).getElementType());
  }
  emit(call);
  return success();
}

} // namespace espalier::codegen
