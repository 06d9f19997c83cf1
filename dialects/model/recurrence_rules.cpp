// Rules and verifiers of recurrences and causal convolutions. Samples, heads and channels are independent. The
// positions of a sequence are not, so the sequence is not split.
#include "dialects/dist/dialect.h"
#include "dialects/model/dialect.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace espalier::model {

using Gradients = GradientBuilder;

static RankedTensorType tensorOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// Returns the first `count` dimensions of `type` with this element type, then the last dimension of `last`, if any.
static RankedTensorType leading(RankedTensorType type, size_t count, Type element, Value last = {}) {
  SmallVector<int64_t> shape(type.getShape().take_front(count));
  SmallVector<StringAttr> dims(dimNames(type).take_front(count));
  if (last) {
    shape.push_back(tensorOf(last).getShape().back());
    dims.push_back(dimNames(last.getType()).back());
  }
  return namedTensor(shape, dims, element);
}

template <typename Op> static FactorKind stateFactor(Op op, StringRef dim) {
  bool isColumns = dim == dimNames(op.getK().getType()).back() || dim == dimNames(op.getV().getType()).back();
  return isColumns || dim == dimNames(op.getK().getType())[1] ? FactorKind::Blocked : FactorKind::Parallel;
}

static bool hasColumnDecay(Operation *op) {
  return tensorOf(op->getOperand(3)).getRank() > tensorOf(op->getOperand(4)).getRank();
}

RankedTensorType stateType(Value k, Value v) {
  auto keys = tensorOf(k), values = tensorOf(v);
  SmallVector<int64_t> shape(values.getShape());
  SmallVector<StringAttr> dims(dimNames(values));
  shape.erase(shape.begin() + 1);
  dims.erase(dims.begin() + 1);
  shape.insert(shape.end() - 1, keys.getShape().back());
  dims.insert(dims.end() - 1, dimNames(keys).back());
  return namedTensor(shape, dims, Float32Type::get(v.getContext()));
}

RankedTensorType haloType(Value x, Value weight) {
  auto inputs = tensorOf(x);
  SmallVector<int64_t> shape(inputs.getShape());
  SmallVector<StringAttr> dims(dimNames(inputs));
  shape[1] = tensorOf(weight).getShape().back() - 1;
  dims[1] = StringAttr::get(x.getContext(), "earlier");
  return namedTensor(shape, dims, inputs.getElementType());
}

int64_t recurrenceChunk(Operation *recurrence) { return hasColumnDecay(recurrence) ? 16 : 64; }

/// Returns the operations of all chunks: `ofStates` products with the state and `ofScores` products of a chunk's
/// positions with each other, of which half are masked, per head.
template <typename Op> static double chunkFlops(Op op, double ofStates, double ofScores) {
  auto heads = static_cast<double>(tensorOf(op.getBeta()).getNumElements());
  auto keys = static_cast<double>(tensorOf(op.getK()).getShape().back()),
       values = static_cast<double>(tensorOf(op.getV()).getShape().back());
  auto chunk = static_cast<double>(recurrenceChunk(op));
  return 2.0 * heads * (ofStates * keys * values + ofScores * chunk * (keys + values) / 2);
}

static LogicalResult verifyNamed(Operation *op) {
  for (Value value : llvm::concat<Value>(SmallVector<Value>(op->getOperands()), SmallVector<Value>(op->getResults())))
    if (static_cast<int64_t>(dimNames(value.getType()).size()) != tensorOf(value).getRank())
      return op->emitOpError("needs tensors with named dimensions, got ") << value.getType();
  return success();
}

/// Checks the operands that a recurrence and its derivative have.
template <typename Op> static LogicalResult verifyStates(Op op) {
  if (failed(verifyNamed(op)))
    return failure();
  RankedTensorType k = tensorOf(op.getK()), v = tensorOf(op.getV()), beta = tensorOf(op.getBeta());
  if (op.getQ().getType() != k || k.getRank() != 4) // recurrence_c1
    return op.emitOpError("needs q and k of one type [batch, seq, heads, key_dim], got ")
           << op.getQ().getType() << " and " << k;
  bool isPrefix =
      (v.getRank() == 4 || v.getRank() == 5) && leading(v, 3, k.getElementType()) == leading(k, 3, v.getElementType());
  if (!isPrefix || llvm::is_contained(dimNames(k), dimNames(v).back())) // recurrence_c2
    return op.emitOpError("needs v with the dimensions of k, but at most a group before the last and another last one, "
                          "got ")
           << v << " for " << k;
  auto single = Float32Type::get(op.getContext());
  auto perHead = leading(v, static_cast<size_t>(v.getRank()) - 1, single);
  bool isDecay = op.getDecay().getType() == perHead ||
                 op.getDecay().getType() == leading(perHead, static_cast<size_t>(perHead.getRank()), single, op.getK());
  if (beta != perHead || !isDecay) // recurrence_c3
    return op.emitOpError("needs f32 beta like v without its last dimension, and decay like beta or with the last "
                          "dimension of k, got ")
           << beta << " and " << op.getDecay().getType();
  return success();
}

/// Checks the positions, or the first visible ones, which may be absent, of an op on sequences like `x`.
static LogicalResult verifyBegins(Operation *op, Value from, Value x, StringRef name = "visible_from") {
  if (from && from.getType() != leading(tensorOf(x), 2, IntegerType::get(op->getContext(), 32))) // recurrence_c4
    return op->emitOpError("needs i32 ") << name << " with the first two dimensions of its sequences, got "
                                         << from.getType();
  return success();
}

template <typename Op> static LogicalResult verifyOut(Op op) {
  if (op.getOut().getType() == op.getV().getType())
    return success();
  return op.emitOpError("needs out of the type of v, got ") << op.getOut().getType() << " for " << op.getV().getType();
}

/// Checks a carried value and its successor.
static LogicalResult verifyCarried(Operation *op, Value before, Value after, RankedTensorType wanted) {
  if (before.getType() == wanted && after.getType() == wanted)
    return success();
  return op->emitOpError("needs a carried value and its successor of type ")
         << wanted << ", got " << before.getType() << " and " << after.getType();
}

/// Checks a convolution of x with a weight or the gradient of a weight.
static LogicalResult verifyTaps(Operation *op, Value x, Value weight) {
  RankedTensorType sequences = tensorOf(x), taps = tensorOf(weight);
  if (taps.getRank() + 1 != sequences.getRank() || taps.getRank() < 2 ||
      dimNames(taps).drop_back() != dimNames(sequences).drop_front(2) ||
      taps.getShape().drop_back() != sequences.getShape().drop_front(2) || taps.getShape().back() < 2 ||
      taps.getShape().back() > 8) // causal_conv_c2
    return op->emitOpError("needs a weight with the channels of x, then 2 to 8 taps, got ")
           << taps << " for " << sequences;
  return success();
}

// recurrence: products with the state are S^T q, k u^T and, with delta, S^T k; those of positions are q k^T with u and,
// with delta, k k^T with u.
FactorKind RecurrenceOp::factorKind(StringRef dim) { return stateFactor(*this, dim); }
double RecurrenceOp::flops() { return chunkFlops(*this, getDelta() ? 3 : 2, getDelta() ? 2 : 1); }
bool RecurrenceOp::isExpensive() { return true; }
void RecurrenceOp::differentiate(Gradients &g) {
  SmallVector<Value> operands = {getQ(), getK(), getV(), getDecay(), getBeta(), g.fullCotangent()};
  if (getVisibleFrom())
    operands.push_back(getVisibleFrom());
  auto grad = g.builder.create<RecurrenceGradOp>(g.loc, (*this)->getOperands().take_front(5).getTypes(), operands);
  grad.setDelta(getDelta());
  for (unsigned i = 0; i < 5; ++i)
    g.contribute(i, grad.getResult(i));
}
LogicalResult RecurrenceOp::verify() {
  if (failed(verifyStates(*this)) || failed(verifyBegins(*this, getVisibleFrom(), getK())))
    return failure();
  return verifyOut(*this); // recurrence_c5
}

// carried_recurrence
FactorKind CarriedRecurrenceOp::factorKind(StringRef dim) { return stateFactor(*this, dim); }
double CarriedRecurrenceOp::flops() { return chunkFlops(*this, getDelta() ? 3 : 2, getDelta() ? 2 : 1); }
bool CarriedRecurrenceOp::isExpensive() { return true; }
LogicalResult CarriedRecurrenceOp::verify() {
  if (failed(verifyStates(*this)) ||                                    // carried_recurrence_c1
      failed(verifyBegins(*this, getPositions(), getK(), "positions"))) // carried_recurrence_c2
    return failure();
  if (failed(verifyCarried(*this, getState(), getNewState(), stateType(getK(), getV())))) // carried_recurrence_c3
    return failure();
  return verifyOut(*this); // carried_recurrence_c4
}

// recurrence_grad: recomputes the states, and has two products for each product of the recurrence
FactorKind RecurrenceGradOp::factorKind(StringRef dim) { return stateFactor(*this, dim); }
SmallVector<Value> RecurrenceGradOp::localize(LocalizeContext &context) {
  SmallVector<Value> results = context.cloneLocal(*this);
  SmallVector<Attribute> axes;
  for (StringAttr dim : dimNames(getV().getType()).drop_back())
    if (dimIndex(getQ().getType(), dim) < 0)
      llvm::append_range(axes, context.axes(getV(), dim));
  OpBuilder &builder = context.builder();
  for (unsigned i = 0; i < 2 && !axes.empty(); ++i)
    results[i] = builder.create<dist::AllReduceOp>(getLoc(), results[i].getType(), results[i],
                                                   builder.getArrayAttr(axes), builder.getStringAttr("sum"));
  return results;
}
double RecurrenceGradOp::flops() { return chunkFlops(*this, getDelta() ? 10 : 7, getDelta() ? 6 : 3); }
bool RecurrenceGradOp::isExpensive() { return true; }
LogicalResult RecurrenceGradOp::verify() {
  if (failed(verifyStates(*this)) || failed(verifyBegins(*this, getVisibleFrom(), getK()))) // recurrence_grad_c1
    return failure();
  if (getCotangent().getType() != getV().getType() || getDv().getType() != getV().getType() ||
      getDq().getType() != getQ().getType() || getDk().getType() != getQ().getType()) // recurrence_grad_c2
    return emitOpError("needs cotangent and dv of the type of v, and dq and dk of the type of q");
  if (getDdecay().getType() != getDecay().getType() ||
      getDbeta().getType() != getBeta().getType()) // recurrence_grad_c3
    return emitOpError("needs ddecay and dbeta of the types of decay and beta");
  return success();
}

// causal_conv: linear in x, so the derivative with respect to x is the transposed convolution
template <typename Op> static FactorKind convFactor(Op op, StringRef dim) {
  bool isParallel = dimIndex(op.getX().getType(), dim) >= 0 && dim != dimNames(op.getX().getType())[1];
  return isParallel ? FactorKind::Parallel : FactorKind::Blocked;
}
template <typename Op> static double convFlops(Op op) {
  return 2.0 * static_cast<double>(tensorOf(op.getX()).getNumElements() * tensorOf(op.getWeight()).getShape().back());
}
FactorKind CausalConvOp::factorKind(StringRef dim) { return convFactor(*this, dim); }
double CausalConvOp::flops() { return convFlops(*this); }
bool CausalConvOp::isExpensive() { return false; }
void CausalConvOp::differentiate(Gradients &g) {
  assert(!getTransposed() && "only convolutions of the forward pass are differentiated");
  Value cotangent = g.fullCotangent();
  g.contribute(0, g.builder.create<CausalConvOp>(g.loc, getX().getType(), cotangent, getWeight(), getVisibleFrom(),
                                                 /*transposed=*/true));
  auto type = withElement(getWeight().getType(), g.builder.getF32Type());
  g.contribute(1, g.builder.create<CausalConvGradOp>(g.loc, type, getX(), cotangent, getVisibleFrom()));
}
/// Checks x, the result and the weight of a convolution.
template <typename Op> static LogicalResult verifyConv(Op op) {
  if (failed(verifyNamed(op)))
    return failure();
  auto x = tensorOf(op.getX());
  Value y = op->getResult(0);
  if (x.getRank() < 3 || withElement(y.getType(), x.getElementType()) != x) // causal_conv_c1
    return op.emitOpError("needs x [batch, seq, channels..] and a result with its dimensions, got ")
           << x << " and " << y.getType();
  return verifyTaps(op, op.getX(), op.getWeight());
}
LogicalResult CausalConvOp::verify() {
  if (failed(verifyConv(*this)))
    return failure();
  return verifyBegins(*this, getVisibleFrom(), getX()); // causal_conv_c3
}

// carried_conv
FactorKind CarriedConvOp::factorKind(StringRef dim) { return convFactor(*this, dim); }
double CarriedConvOp::flops() { return convFlops(*this); }
bool CarriedConvOp::isExpensive() { return false; }
LogicalResult CarriedConvOp::verify() {
  if (failed(verifyConv(*this)) ||                                      // carried_conv_c1 carried_conv_c2
      failed(verifyBegins(*this, getPositions(), getX(), "positions"))) // carried_conv_c3
    return failure();
  return verifyCarried(*this, getHalo(), getNewHalo(), haloType(getX(), getWeight())); // carried_conv_c4
}

// causal_conv_grad
FactorKind CausalConvGradOp::factorKind(StringRef dim) {
  auto names = dimNames(getX().getType());
  if (dim == names[0])
    return FactorKind::Sum;
  return dim == names[1] || dimIndex(getX().getType(), dim) < 0 ? FactorKind::Blocked : FactorKind::Parallel;
}
double CausalConvGradOp::flops() {
  return 2.0 * static_cast<double>(tensorOf(getX()).getNumElements() * tensorOf(getResult()).getShape().back());
}
bool CausalConvGradOp::isExpensive() { return false; }
LogicalResult CausalConvGradOp::verify() {
  if (failed(verifyNamed(*this)))
    return failure();
  auto x = tensorOf(getX());
  if (x.getRank() < 3 || withElement(getCotangent().getType(), x.getElementType()) != x) // causal_conv_grad_c1
    return emitOpError("needs x [batch, seq, channels..] and a cotangent with its dimensions, got ")
           << x << " and " << getCotangent().getType();
  if (!tensorOf(getResult()).getElementType().isF32())
    return emitOpError("needs a result of type f32, got ") << getResult().getType();
  if (failed(verifyTaps(*this, getX(), getResult()))) // causal_conv_grad_c2
    return failure();
  return verifyBegins(*this, getVisibleFrom(), getX()); // causal_conv_grad_c3
}

} // namespace espalier::model
