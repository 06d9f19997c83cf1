// Reverse-mode differentiation of segments on global shapes. The forward function is extended in place by
// model.cotangent and the backward ops, so that later passes see one joint function. An op's rule only states
// contributions to its operands (dialects/model/rules.cpp); this pass sums the contributions and propagates them in
// reverse order. A frozen parameter has no accumulator, so its contributions stay unused and are removed afterwards.
#include "compiler/passes.h"

#include "compiler/attributes/run_attributes.h"
#include "dialects/attributes.h"
#include "dialects/model/dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_DIFFERENTIATE
#include "compiler/passes.h.inc"

namespace {

StringRef argumentString(func::FuncOp function, unsigned index, StringRef name) {
  auto attribute = function.getArgAttrOfType<StringAttr>(index, name);
  return attribute ? attribute.getValue() : StringRef();
}

DictionaryAttr roleAttributes(OpBuilder &builder, StringRef role, StringRef name) {
  return builder.getDictionaryAttr({builder.getNamedAttr(model::roleAttr, builder.getStringAttr(role)),
                                    builder.getNamedAttr(model::nameAttr, builder.getStringAttr(name))});
}

/// The cotangents of all values of one function, filled in reverse order.
class Cotangents {
public:
  explicit Cotangents(OpBuilder &builder) : builder(builder) {}

  void add(Location loc, Value value, Value contribution) {
    Value &sum = cotangents[value];
    if (!sum) {
      sum = contribution;
      return;
    }
    Type element = cast<RankedTensorType>(sum.getType()).getElementType();
    // Both terms may lack dimensions of the value; their dimensions are in the value's order.
    Type type = broadcastType({sum, contribution}, element, value.getType());
    sum = builder.create<model::AddOp>(loc, type, sum, contribution);
  }
  Value of(Value value) const { return cotangents.lookup(value); }

private:
  OpBuilder &builder;
  llvm::DenseMap<Value, Value> cotangents;
};

/// Adds the contributions of all forward ops, last to first.
LogicalResult propagateBack(ArrayRef<Operation *> forward, Cotangents &cotangents, OpBuilder &builder) {
  for (Operation *op : llvm::reverse(forward)) {
    if (op->getNumOperands() == 0) // constants and run-time scalars have no operands to propagate to
      continue;
    SmallVector<Value> ofResults;
    for (Value result : op->getResults())
      ofResults.push_back(cotangents.of(result));
    bool isUsed = llvm::any_of(ofResults, [](Value value) { return value != nullptr; });
    if (!isUsed || op->getNumOperands() == 0)
      continue;
    auto differentiable = dyn_cast<DifferentiableOp>(op);
    if (!differentiable)
      return op->emitOpError("has no derivative, but the loss depends on it");
    Location loc = FusedLoc::get(builder.getContext(), {op->getLoc()}, builder.getStringAttr("backward"));
    GradientBuilder gradients(builder, loc, op, ofResults);
    differentiable.differentiate(gradients);
    for (auto [index, operand] : llvm::enumerate(op->getOperands()))
      if (Value contribution = gradients.contribution(index))
        cotangents.add(loc, operand, contribution);
  }
  return success();
}

/// Returns the gradient of an argument with all its dimensions; zeros if the loss does not depend on the argument.
Value wholeGradient(OpBuilder &builder, Location loc, Value gradient, RankedTensorType type) {
  if (!gradient)
    gradient =
        builder.create<model::ConstantOp>(loc, namedTensor({}, {}, type.getElementType()), builder.getF64FloatAttr(0));
  if (gradient.getType() == type)
    return gradient;
  return builder.create<model::BroadcastOp>(loc, type, gradient);
}

/// Returns the forward ops to differentiate: all ops before the terminator.
SmallVector<Operation *> opsOf(func::FuncOp function) {
  SmallVector<Operation *> ops;
  for (Operation &op : function.getBody().front().without_terminator())
    ops.push_back(&op);
  return ops;
}

LogicalResult differentiateSegment(func::FuncOp function) {
  OpBuilder builder(function.getContext());
  Block &body = function.getBody().front();
  Operation *terminator = body.getTerminator();
  SmallVector<Operation *> forward = opsOf(function);
  unsigned arguments = function.getNumArguments();
  Location loc = function.getLoc();

  builder.setInsertionPoint(terminator);
  Cotangents cotangents(builder);
  for (auto [index, result] : llvm::enumerate(terminator->getOperands())) {
    auto role = model::roleAttr.ofResult(function, index);
    if (index == 0 || (role && role.getValue() == "loss"))
      cotangents.add(loc, result, builder.create<model::CotangentOp>(loc, result.getType(), result));
  }
  if (failed(propagateBack(forward, cotangents, builder)))
    return failure();

  SmallVector<Value> results(terminator->getOperands());
  SmallVector<DictionaryAttr> resultAttributes;
  for (unsigned i = 0; i < results.size(); ++i)
    resultAttributes.push_back(function.getResultAttrDict(i));
  for (unsigned i = 0; i < arguments; ++i) {
    Value argument = body.getArgument(i);
    StringRef role = argumentString(function, i, model::roleAttr), name = argumentString(function, i, model::nameAttr);
    auto type = cast<RankedTensorType>(argument.getType());
    if (role == "stream") {
      results.push_back(wholeGradient(builder, loc, cotangents.of(argument), type));
      resultAttributes.push_back(roleAttributes(builder, "cotangent", name));
    } else if (role == "parameter" && !function.getArgAttr(i, model::frozenAttr)) {
      auto facts = model::parametersAttr.of(function);
      auto own = facts ? facts.getAs<exec::ParameterAttr>(name) : exec::ParameterAttr();
      bool hasSignRate = own && own.getSignRate() > 0;
      Type sum = withElement(type, readGradientType(function->getParentOfType<ModuleOp>(), hasSignRate));
      (void)function.insertArgument(function.getNumArguments(), sum, roleAttributes(builder, "accumulator", name),
                                    argument.getLoc());
      Value gradient = wholeGradient(builder, loc, cotangents.of(argument), withElement(type, builder.getF32Type()));
      Value accumulator = body.getArguments().back();
      results.push_back(builder.create<model::AccumulateOp>(loc, sum, accumulator, gradient));
      resultAttributes.push_back(roleAttributes(builder, "accumulator", name));
    }
  }
  terminator->setOperands(results);
  function.setType(builder.getFunctionType(body.getArgumentTypes(), ValueRange(results).getTypes()));
  for (auto [index, attributes] : llvm::enumerate(resultAttributes))
    function.setResultAttrs(index, attributes);
  return success();
}

struct DifferentiatePass : impl::DifferentiateBase<DifferentiatePass> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (model::segmentAttr.isOn(function) && failed(differentiateSegment(function)))
        return signalPassFailure();
  }
};

} // namespace
} // namespace espalier
