// Rules and verifiers of recurrences and causal convolutions. Samples, heads and channels are independent. The ranks of
// a split sequence exchange states and the inputs of convolutions at the borders of their shards. The state after a run
// of positions is linear in the state before, so all ranks compute their part of it at once and gather the parts.
#include "dialects/dist/dialect.h"
#include "dialects/model/shards.h"

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
  return isColumns ? FactorKind::Blocked : FactorKind::Parallel;
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

/// Returns `type` with `size` elements in dimension `dim`.
static RankedTensorType resized(RankedTensorType type, int64_t dim, int64_t size) {
  SmallVector<int64_t> shape(type.getShape());
  shape[dim] = size;
  return namedTensor(shape, dimNames(type), type.getElementType());
}

RankedTensorType bordersType(Value k, Value v, int64_t runs, bool delta, bool backward) {
  RankedTensorType state = stateType(k, v);
  SmallVector<int64_t> shape(state.getShape());
  SmallVector<StringAttr> dims(dimNames(state));
  shape.insert(shape.begin() + 1, runs);
  dims.insert(dims.begin() + 1, dimNames(k.getType())[1]);
  if (!backward) {
    shape.back() += delta ? tensorOf(k).getShape().back() : 1;
    dims.back() = StringAttr::get(k.getContext(), "state_columns");
  }
  return namedTensor(shape, dims, state.getElementType());
}

namespace {

/// The shard of a sequence on each rank: in zigzag order two runs of positions, else one.
class Shard {
public:
  /// `global` is an operand of the op that is localized, [batch, seq, ..].
  Shard(LocalizeContext &context, Value global, Value local)
      : context(context), dim(dimNames(global.getType())[1]),
        axes(context.builder().getArrayAttr(context.axes(global, dim))), first(context.origin(global, dim)),
        whole(tensorOf(global).getDimSize(1)), positions(tensorOf(local).getDimSize(1)) {}

  bool isWhole() const { return axes.empty(); }
  /// The stride of the last axis is the length of a run.
  int64_t runs() const { return positions / cast<dist::OriginAttr>(first).getStrides().back(); }

  /// Gathers what each rank has of its runs. Created at the operand's location, so that it is the same work in each
  /// pass.
  Value gather(Value global, Value ofRuns) const {
    RankedTensorType type = tensorOf(ofRuns);
    return context.builder().create<dist::AllGatherOp>(
        global.getLoc(), resized(type, 1, type.getDimSize(1) * whole / positions), ofRuns, axes, 1);
  }
  /// Gathers shard_states of the operands of a recurrence, or of its derivative with `cotangent`.
  template <typename Op> Value borders(Op op, ArrayRef<Value> operands, Value cotangent = {}) const {
    Value v = cotangent ? cotangent : operands[2];
    Value states = context.builder().create<ShardStatesOp>(
        op.getQ().getLoc(), bordersType(operands[1], v, runs(), op.getDelta(), cotangent != nullptr), operands[0],
        operands[1], v, operands[3], operands[4], op.getVisibleFrom() ? operands.back() : Value(), op.getDelta(),
        cotangent != nullptr, first, static_cast<uint64_t>(whole));
    return gather(op.getQ(), states);
  }
  /// Gathers the last or first positions of the runs of x, `most` of each run with more.
  Value edges(Value global, Value x, int64_t most, bool isFirst) const {
    int64_t kept = std::min(most, positions / runs());
    Value ofRuns = context.builder().create<ShardEdgesOp>(global.getLoc(), resized(tensorOf(x), 1, kept * runs()), x,
                                                          isFirst, first);
    return gather(global, ofRuns);
  }
  Attribute firstPosition() const { return first; }

private:
  LocalizeContext &context;
  StringAttr dim;
  ArrayAttr axes;
  Attribute first;
  int64_t whole, positions;
};

SmallVector<Value> localOperands(LocalizeContext &context, Operation *op) {
  SmallVector<Value> operands;
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    operands.push_back(context.operand(i));
  return operands;
}

/// Localizes a convolution or the derivative of its weight.
template <typename Op> SmallVector<Value> convOnShard(Op op, LocalizeContext &context) {
  SmallVector<Value> operands = localOperands(context, op);
  Shard shard(context, op.getX(), operands[0]);
  if (shard.isWhole())
    return {};
  Value from = op.getVisibleFrom() ? operands.back() : Value();
  OpBuilder &builder = context.builder();
  if constexpr (std::is_same_v<Op, CausalConvGradOp>) {
    Value edges = shard.edges(op.getX(), operands[0], tensorOf(op.getResult()).getShape().back() - 1, false);
    return {builder.create<ShardConvGradOp>(op.getLoc(), context.resultType(0), operands[0], operands[1], edges, from,
                                            shard.firstPosition())};
  } else {
    int64_t most = tensorOf(operands[1]).getShape().back() - 1;
    Value edges = shard.edges(op.getX(), operands[0], most, op.getTransposed());
    SmallVector<Value> limits;
    if (from)
      limits.push_back(from);
    if (from && op.getTransposed())
      limits.push_back(shard.edges(op.getVisibleFrom(), from, most, /*isFirst=*/true));
    return {builder.create<ShardConvOp>(op.getLoc(), context.resultType(0), operands[0], operands[1], edges, limits,
                                        op.getTransposed(), shard.firstPosition())};
  }
}

} // namespace

SmallVector<Value> localizeOnShard(Operation *op, LocalizeContext &context) {
  if (auto conv = dyn_cast<CausalConvOp>(op))
    return convOnShard(conv, context);
  if (auto grad = dyn_cast<CausalConvGradOp>(op))
    return convOnShard(grad, context);
  if (!isa<RecurrenceOp, RecurrenceGradOp>(op))
    return {};
  SmallVector<Value> in = localOperands(context, op);
  Shard shard(context, op->getOperand(0), in[0]);
  if (shard.isWhole())
    return {};
  OpBuilder &builder = context.builder();
  if (auto recurrence = dyn_cast<RecurrenceOp>(op)) {
    Value borders = shard.borders(recurrence, in);
    return {builder.create<ShardRecurrenceOp>(op->getLoc(), context.resultType(0), in[0], in[1], in[2], in[3], in[4],
                                              borders, recurrence.getVisibleFrom() ? in.back() : Value(),
                                              recurrence.getDelta(), shard.firstPosition())};
  }
  auto grad = cast<RecurrenceGradOp>(op);
  SmallVector<Type> types;
  for (unsigned i = 0; i < 5; ++i)
    types.push_back(context.resultType(i));
  Value borders = shard.borders(grad, in), ends = shard.borders(grad, in, in[5]);
  auto onShard = builder.create<ShardRecurrenceGradOp>(op->getLoc(), types, in[0], in[1], in[2], in[3], in[4], in[5],
                                                       borders, ends, grad.getVisibleFrom() ? in.back() : Value(),
                                                       grad.getDelta(), shard.firstPosition());
  return SmallVector<Value>(onShard->getResults());
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
FactorKind CarriedRecurrenceOp::factorKind(StringRef dim) {
  return dim == dimNames(getK().getType())[1] ? FactorKind::Blocked : stateFactor(*this, dim);
}
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
  SmallVector<Value> results = localizeOnShard(*this, context);
  if (results.empty())
    results = context.cloneLocal(*this);
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
/// Checks the cotangent and the gradients of a recurrence.
template <typename Op> static LogicalResult verifyGradients(Op op) {
  if (op.getCotangent().getType() != op.getV().getType() || op.getDv().getType() != op.getV().getType() ||
      op.getDq().getType() != op.getQ().getType() || op.getDk().getType() != op.getQ().getType()) // recurrence_grad_c2
    return op.emitOpError("needs cotangent and dv of the type of v, and dq and dk of the type of q");
  if (op.getDdecay().getType() != op.getDecay().getType() ||
      op.getDbeta().getType() != op.getBeta().getType()) // recurrence_grad_c3
    return op.emitOpError("needs ddecay and dbeta of the types of decay and beta");
  return success();
}
LogicalResult RecurrenceGradOp::verify() {
  if (failed(verifyStates(*this)) || failed(verifyBegins(*this, getVisibleFrom(), getK()))) // recurrence_grad_c1
    return failure();
  return verifyGradients(*this);
}

// causal_conv: linear in x, so the derivative with respect to x is the transposed convolution
template <typename Op> static FactorKind convFactor(Op op, StringRef dim) {
  return dimIndex(op.getX().getType(), dim) >= 0 ? FactorKind::Parallel : FactorKind::Blocked;
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
FactorKind CarriedConvOp::factorKind(StringRef dim) {
  return dim == dimNames(getX().getType())[1] ? FactorKind::Blocked : convFactor(*this, dim);
}
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
  if (dim == names[0] || dim == names[1])
    return FactorKind::Sum;
  return dimIndex(getX().getType(), dim) < 0 ? FactorKind::Blocked : FactorKind::Parallel;
}
template <typename Op> static double convGradFlops(Op op) {
  return 2.0 * static_cast<double>(tensorOf(op.getX()).getNumElements() * tensorOf(op.getResult()).getShape().back());
}
double CausalConvGradOp::flops() { return convGradFlops(*this); }
bool CausalConvGradOp::isExpensive() { return false; }
/// Checks the operands and the result of the derivative of a convolution with respect to its weight.
template <typename Op> static LogicalResult verifyConvGrad(Op op) {
  if (failed(verifyNamed(op)))
    return failure();
  auto x = tensorOf(op.getX());
  if (x.getRank() < 3 || withElement(op.getCotangent().getType(), x.getElementType()) != x) // causal_conv_grad_c1
    return op.emitOpError("needs x [batch, seq, channels..] and a cotangent with its dimensions, got ")
           << x << " and " << op.getCotangent().getType();
  if (!tensorOf(op.getResult()).getElementType().isF32())
    return op.emitOpError("needs a result of type f32, got ") << op.getResult().getType();
  if (failed(verifyTaps(op, op.getX(), op.getResult()))) // causal_conv_grad_c2
    return failure();
  return verifyBegins(op, op.getVisibleFrom(), op.getX()); // causal_conv_grad_c3
}
LogicalResult CausalConvGradOp::verify() { return verifyConvGrad(*this); }

// shard_states: one product with the state less than a recurrence, or one more backward; with delta, B has the columns
// of A beside it
double ShardStatesOp::flops() {
  auto keys = static_cast<double>(tensorOf(getK()).getShape().back()),
       values = static_cast<double>(tensorOf(getV()).getShape().back());
  double wider = getDelta() && !getBackward() ? (keys + values) / values : 1;
  double products = (getBackward() ? 2 : 1) + (getDelta() ? 1 : 0);
  return chunkFlops(*this, wider * products, (getBackward() ? 1 : 0) + (getDelta() ? 1 : 0));
}
bool ShardStatesOp::isExpensive() { return true; }
LogicalResult ShardStatesOp::verify() {
  if (failed(verifyStates(*this)) || failed(verifyBegins(*this, getVisibleFrom(), getK()))) // shard_states_c1
    return failure();
  RankedTensorType type = tensorOf(getResult());
  if (type.getRank() < 2 ||
      type != bordersType(getK(), getV(), type.getDimSize(1), getDelta(), getBackward())) // shard_states_c2
    return emitOpError("needs a result [batch, runs, heads, group.., key_dim, columns], got ") << type;
  if (static_cast<int64_t>(getWhole()) < tensorOf(getK()).getDimSize(1)) // shard_states_c3
    return emitOpError("needs a sequence at least as long as its shard, got ") << getWhole();
  return success();
}

/// Checks gathered results of shard_states.
template <typename Op> static LogicalResult verifyBorders(Op op, Value borders, bool backward) {
  RankedTensorType type = tensorOf(borders);
  if (type.getRank() > 1 && type == bordersType(op.getK(), op.getV(), type.getDimSize(1), op.getDelta(), backward))
    return success();
  return op.emitOpError("needs gathered results of shard_states, got ") << type;
}

// shard_recurrence
double ShardRecurrenceOp::flops() { return chunkFlops(*this, getDelta() ? 3 : 2, getDelta() ? 2 : 1); }
bool ShardRecurrenceOp::isExpensive() { return true; }
LogicalResult ShardRecurrenceOp::verify() {
  if (failed(verifyStates(*this)) || failed(verifyBegins(*this, getVisibleFrom(), getK())) ||
      failed(verifyOut(*this))) // shard_recurrence_c1
    return failure();
  return verifyBorders(*this, getBorders(), /*backward=*/false); // shard_recurrence_c2
}

// shard_recurrence_grad
double ShardRecurrenceGradOp::flops() { return chunkFlops(*this, getDelta() ? 10 : 7, getDelta() ? 6 : 3); }
bool ShardRecurrenceGradOp::isExpensive() { return true; }
LogicalResult ShardRecurrenceGradOp::verify() {
  if (failed(verifyStates(*this)) || failed(verifyBegins(*this, getVisibleFrom(), getK())) ||
      failed(verifyGradients(*this))) // shard_recurrence_grad_c1
    return failure();
  if (failed(verifyBorders(*this, getBorders(), /*backward=*/false))) // shard_recurrence_grad_c2
    return failure();
  return verifyBorders(*this, getEnds(), /*backward=*/true);
}

/// Checks gathered results of shard_edges of x.
static LogicalResult verifyEdges(Operation *op, Value x, Value edges) {
  RankedTensorType type = tensorOf(edges), like = tensorOf(x);
  if (type.getRank() > 1 && like.getRank() > 1 && type == resized(like, 1, type.getDimSize(1)))
    return success();
  return op->emitOpError("needs gathered results of shard_edges of ") << like << ", got " << type;
}

// shard_edges
double ShardEdgesOp::flops() { return 0; }
bool ShardEdgesOp::isExpensive() { return false; }
LogicalResult ShardEdgesOp::verify() {
  if (failed(verifyNamed(*this)))
    return failure();
  RankedTensorType x = tensorOf(getX()), y = tensorOf(getResult());
  if (x.getRank() < 2 || y.getRank() < 2 || y != resized(x, 1, y.getDimSize(1)) ||
      y.getDimSize(1) > x.getDimSize(1)) // shard_edges_c1
    return emitOpError("needs a result like x with at most as many positions, got ") << y << " for " << x;
  return success();
}

// shard_conv
double ShardConvOp::flops() { return convFlops(*this); }
bool ShardConvOp::isExpensive() { return false; }
LogicalResult ShardConvOp::verify() {
  Value from = getVisibleFrom();
  if (failed(verifyConv(*this)) || failed(verifyBegins(*this, from, getX()))) // shard_conv_c1
    return failure();
  if (failed(verifyEdges(*this, getX(), getEdges()))) // shard_conv_c2
    return failure();
  if (getLimits().size() != (from ? getTransposed() ? 2 : 1 : 0))
    return emitOpError("needs visible_from, and its first positions if it is transposed, or none, got ")
           << getLimits().size() << " limits";
  return getLimits().size() < 2 ? success() : verifyEdges(*this, from, getLimits()[1]);
}

// shard_conv_grad
double ShardConvGradOp::flops() { return convGradFlops(*this); }
bool ShardConvGradOp::isExpensive() { return false; }
LogicalResult ShardConvGradOp::verify() {
  if (failed(verifyConvGrad(*this))) // shard_conv_grad_c1
    return failure();
  return verifyEdges(*this, getX(), getEdges()); // shard_conv_grad_c2
}

} // namespace espalier::model
