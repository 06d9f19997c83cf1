// Rules of the model dialect, op by op: sharding, derivative, cost and, for element-wise ops, evaluation and code of
// one element. A new op needs a .td entry, rules here and an evaluation in the interpreter.
#include "dialects/attributes.h"
#include "dialects/dist/dialect.h"
#include "dialects/model/dialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;

namespace espalier::model {

namespace {

using Gradients = GradientBuilder;

/// Makes a constant of the type of `like`, which is f32 or a vector of f32.
Value floatLike(OpBuilder &builder, Location loc, Value like, double value) {
  Type type = like.getType();
  Attribute number = builder.getF32FloatAttr(value);
  if (auto vector = dyn_cast<VectorType>(type))
    return builder.create<arith::ConstantOp>(loc, DenseElementsAttr::get(vector, cast<FloatAttr>(number)));
  return builder.create<arith::ConstantOp>(loc, cast<TypedAttr>(number));
}

/// Returns Sum for dimensions that `result` lacks, Parallel for the others.
FactorKind sumOutside(StringRef dim, Type result) {
  return dimIndex(result, dim) < 0 ? FactorKind::Sum : FactorKind::Parallel;
}

/// Returns an array with the origin of each dimension of `global`: #dist.origin, or unit if the dimension is not split.
ArrayAttr originsOf(LocalizeContext &context, Value global) {
  SmallVector<Attribute> origins;
  for (StringAttr dim : dimNames(global.getType())) {
    Attribute origin = context.origin(global, dim);
    origins.push_back(origin ? origin : UnitAttr::get(dim.getContext()));
  }
  return context.builder().getArrayAttr(origins);
}

/// Clones the op locally and sets attribute `name` to the origin of dimension `dim` of `global`.
SmallVector<Value> cloneWithOrigin(LocalizeContext &context, Operation *op, StringRef name, Value global,
                                   StringRef dim) {
  SmallVector<Value> results = context.cloneLocal(op);
  if (Attribute origin = context.origin(global, dim))
    results.front().getDefiningOp()->setAttr(name, origin);
  return results;
}

/// Sets the origins and the unsplit shape of `global` on a local op, because random bits depend on both. Returns its
/// results.
SmallVector<Value> withOrigins(LocalizeContext &context, Operation *local, Value global) {
  local->setAttr("origins", originsOf(context, global));
  local->setAttr("unsplit",
                 context.builder().getDenseI64ArrayAttr(cast<RankedTensorType>(global.getType()).getShape()));
  return SmallVector<Value>(local->getResults());
}

StringRef lastDim(Value value) { return dimNames(value.getType()).back(); }

} // namespace

// neg
double NegOp::evaluate(ArrayRef<double> x) { return -x[0]; }
Value NegOp::emit(OpBuilder &b, Location loc, ValueRange x) { return b.create<arith::NegFOp>(loc, x[0]); }
void NegOp::differentiate(Gradients &g) { g.contribute(0, g.neg(g.cotangent())); }

// exp
double ExpOp::evaluate(ArrayRef<double> x) { return std::exp(x[0]); }
Value ExpOp::emit(OpBuilder &b, Location loc, ValueRange x) { return b.create<math::ExpOp>(loc, x[0]); }
void ExpOp::differentiate(Gradients &g) { g.contribute(0, g.mul(g.cotangent(), g.result())); }

// log
double LogOp::evaluate(ArrayRef<double> x) { return std::log(x[0]); }
Value LogOp::emit(OpBuilder &b, Location loc, ValueRange x) { return b.create<math::LogOp>(loc, x[0]); }
void LogOp::differentiate(Gradients &g) { g.contribute(0, g.div(g.cotangent(), g.operand(0))); }

// tanh: dy (1 - y^2)
double TanhOp::evaluate(ArrayRef<double> x) { return std::tanh(x[0]); }
Value TanhOp::emit(OpBuilder &b, Location loc, ValueRange x) { return b.create<math::TanhOp>(loc, x[0]); }
void TanhOp::differentiate(Gradients &g) {
  Value slope = g.sub(g.constant(1), g.mul(g.result(), g.result()));
  g.contribute(0, g.mul(g.cotangent(), slope));
}

// erf: dy 2/sqrt(pi) exp(-x^2)
double ErfOp::evaluate(ArrayRef<double> x) { return std::erf(x[0]); }
Value ErfOp::emit(OpBuilder &b, Location loc, ValueRange x) { return b.create<math::ErfOp>(loc, x[0]); }
void ErfOp::differentiate(Gradients &g) {
  Value square = g.mul(g.operand(0), g.operand(0));
  Value exponent = g.neg(square);
  Value bell = g.builder.create<ExpOp>(g.loc, exponent.getType(), exponent);
  g.contribute(0, g.mul(g.cotangent(), g.mul(bell, g.constant(2 / std::sqrt(M_PI)))));
}

// logistic: dy y (1 - y)
double LogisticOp::evaluate(ArrayRef<double> x) { return 1 / (1 + std::exp(-x[0])); }
Value LogisticOp::emit(OpBuilder &b, Location loc, ValueRange x) {
  Value one = floatLike(b, loc, x[0], 1);
  Value power = b.create<math::ExpOp>(loc, b.create<arith::NegFOp>(loc, x[0]));
  return b.create<arith::DivFOp>(loc, one, b.create<arith::AddFOp>(loc, one, power));
}
void LogisticOp::differentiate(Gradients &g) {
  Value slope = g.mul(g.result(), g.sub(g.constant(1), g.result()));
  g.contribute(0, g.mul(g.cotangent(), slope));
}

// rsqrt: -1/2 dy y^3
double RsqrtOp::evaluate(ArrayRef<double> x) { return 1 / std::sqrt(x[0]); }
Value RsqrtOp::emit(OpBuilder &b, Location loc, ValueRange x) {
  return b.create<arith::DivFOp>(loc, floatLike(b, loc, x[0], 1), b.create<math::SqrtOp>(loc, x[0]));
}
void RsqrtOp::differentiate(Gradients &g) {
  Value cube = g.mul(g.result(), g.mul(g.result(), g.result()));
  g.contribute(0, g.mul(g.cotangent(), g.mul(cube, g.constant(-0.5))));
}

// sqrt: dy / (2 y)
double SqrtOp::evaluate(ArrayRef<double> x) { return std::sqrt(x[0]); }
Value SqrtOp::emit(OpBuilder &b, Location loc, ValueRange x) { return b.create<math::SqrtOp>(loc, x[0]); }
void SqrtOp::differentiate(Gradients &g) { g.contribute(0, g.div(g.mul(g.cotangent(), g.constant(0.5)), g.result())); }

// step
double StepOp::evaluate(ArrayRef<double> x) { return x[0] > 0 ? 1 : 0; }
Value StepOp::emit(OpBuilder &b, Location loc, ValueRange x) {
  Value zero = floatLike(b, loc, x[0], 0);
  Value isPositive = b.create<arith::CmpFOp>(loc, arith::CmpFPredicate::OGT, x[0], zero);
  return b.create<arith::SelectOp>(loc, isPositive, floatLike(b, loc, x[0], 1), zero);
}
void StepOp::differentiate(Gradients &) {}

// gelu: x/2 (1 + t) with t = tanh(s (x + c x^3)) and s = sqrt(2/pi); dy ((1 + t)/2 + x/2 (1 - t^2) s (1 + 3 c x^2))
static constexpr double geluScale = 0.7978845608028654, geluCube = 0.044715;
double GeluOp::evaluate(ArrayRef<double> x) {
  return x[0] / 2 * (1 + std::tanh(geluScale * (x[0] + geluCube * x[0] * x[0] * x[0])));
}
/// Computes t from x and x^2.
static Value geluTanh(ImplicitLocOpBuilder &b, Value x, Value square) {
  auto number = [&](double value) { return floatLike(b, b.getLoc(), x, value); };
  Value cubic = b.create<arith::AddFOp>(b.create<arith::MulFOp>(square, number(geluCube)), number(1));
  return b.create<math::TanhOp>(b.create<arith::MulFOp>(b.create<arith::MulFOp>(x, cubic), number(geluScale)));
}
Value GeluOp::emit(OpBuilder &builder, Location loc, ValueRange x) {
  ImplicitLocOpBuilder b(loc, builder);
  Value t = geluTanh(b, x[0], b.create<arith::MulFOp>(x[0], x[0]));
  Value half = b.create<arith::MulFOp>(x[0], floatLike(b, loc, x[0], 0.5));
  return b.create<arith::MulFOp>(half, b.create<arith::AddFOp>(t, floatLike(b, loc, x[0], 1)));
}
void GeluOp::differentiate(Gradients &g) {
  g.contribute(0, g.builder.create<GeluGradOp>(g.loc, g.gradientType(0), g.cotangent(), g.operand(0)));
}

// gelu_grad
double GeluGradOp::evaluate(ArrayRef<double> x) {
  double square = x[1] * x[1], t = std::tanh(geluScale * (x[1] + geluCube * square * x[1]));
  return x[0] * ((1 + t) / 2 + x[1] / 2 * (1 - t * t) * geluScale * (1 + 3 * geluCube * square));
}
Value GeluGradOp::emit(OpBuilder &builder, Location loc, ValueRange x) {
  ImplicitLocOpBuilder b(loc, builder);
  auto number = [&](double value) { return floatLike(b, loc, x[1], value); };
  Value square = b.create<arith::MulFOp>(x[1], x[1]), t = geluTanh(b, x[1], square);
  Value slope = b.create<arith::AddFOp>(b.create<arith::MulFOp>(square, number(1.5 * geluScale * geluCube)),
                                        number(0.5 * geluScale));
  slope = b.create<arith::MulFOp>(b.create<arith::MulFOp>(x[1], slope),
                                  b.create<arith::SubFOp>(number(1), b.create<arith::MulFOp>(t, t)));
  Value first = b.create<arith::MulFOp>(b.create<arith::AddFOp>(t, number(1)), number(0.5));
  return b.create<arith::MulFOp>(x[0], b.create<arith::AddFOp>(first, slope));
}

// convert
double ConvertOp::evaluate(ArrayRef<double> x) { return x[0]; }
Value ConvertOp::emit(OpBuilder &, Location, ValueRange x) { return x[0]; }
void ConvertOp::differentiate(Gradients &g) { g.contribute(0, g.cotangent()); }

// broadcast
double BroadcastOp::evaluate(ArrayRef<double> x) { return x[0]; }
Value BroadcastOp::emit(OpBuilder &, Location, ValueRange x) { return x[0]; }
void BroadcastOp::differentiate(Gradients &g) { g.contribute(0, g.cotangent()); }

// add
double AddOp::evaluate(ArrayRef<double> x) { return x[0] + x[1]; }
Value AddOp::emit(OpBuilder &b, Location loc, ValueRange x) { return b.create<arith::AddFOp>(loc, x[0], x[1]); }
void AddOp::differentiate(Gradients &g) {
  g.contribute(0, g.cotangent());
  g.contribute(1, g.cotangent());
}
bool AddOp::passesPartial() { return true; }

// sub
double SubOp::evaluate(ArrayRef<double> x) { return x[0] - x[1]; }
Value SubOp::emit(OpBuilder &b, Location loc, ValueRange x) { return b.create<arith::SubFOp>(loc, x[0], x[1]); }
void SubOp::differentiate(Gradients &g) {
  g.contribute(0, g.cotangent());
  g.contribute(1, g.neg(g.cotangent()));
}

// mul
double MulOp::evaluate(ArrayRef<double> x) { return x[0] * x[1]; }
Value MulOp::emit(OpBuilder &b, Location loc, ValueRange x) { return b.create<arith::MulFOp>(loc, x[0], x[1]); }
void MulOp::differentiate(Gradients &g) {
  g.contribute(0, g.mul(g.cotangent(), g.operand(1)));
  g.contribute(1, g.mul(g.cotangent(), g.operand(0)));
}

// div: da = dy / b, db = -dy y / b
double DivOp::evaluate(ArrayRef<double> x) { return x[0] / x[1]; }
Value DivOp::emit(OpBuilder &b, Location loc, ValueRange x) { return b.create<arith::DivFOp>(loc, x[0], x[1]); }
void DivOp::differentiate(Gradients &g) {
  Value share = g.div(g.cotangent(), g.operand(1));
  g.contribute(0, share);
  g.contribute(1, g.neg(g.mul(share, g.result())));
}

// select
double SelectOp::evaluate(ArrayRef<double> x) { return x[0] > 0 ? x[1] : x[2]; }
Value SelectOp::emit(OpBuilder &b, Location loc, ValueRange x) {
  Value zero = floatLike(b, loc, x[0], 0);
  Value isChosen = b.create<arith::CmpFOp>(loc, arith::CmpFPredicate::OGT, x[0], zero);
  return b.create<arith::SelectOp>(loc, isChosen, x[1], x[2]);
}
void SelectOp::differentiate(Gradients &g) {
  auto choose = [&](Value a, Value b) -> Value {
    Type type = broadcastType({g.operand(0), a, b}, g.builder.getF32Type(), g.result().getType());
    return g.builder.create<SelectOp>(g.loc, type, g.operand(0), a, b);
  };
  g.contribute(1, choose(g.cotangent(), g.constant(0)));
  g.contribute(2, choose(g.constant(0), g.cotangent()));
}

// reduce_sum
FactorKind ReduceSumOp::factorKind(StringRef dim) { return sumOutside(dim, getType()); }
bool ReduceSumOp::passesPartial() { return true; }
SmallVector<Value> ReduceSumOp::localize(LocalizeContext &context) { return context.cloneLocal(*this); }
double ReduceSumOp::flops() { return cast<RankedTensorType>(getX().getType()).getNumElements(); }
void ReduceSumOp::differentiate(Gradients &g) { g.contribute(0, g.cotangent()); }

// reduce_max: the maximum over shards is reduced here, because partial values are always sums.
FactorKind ReduceMaxOp::factorKind(StringRef) { return FactorKind::Parallel; }
bool ReduceMaxOp::passesPartial() { return false; }
SmallVector<Value> ReduceMaxOp::localize(LocalizeContext &context) {
  Value local = context.cloneLocal(*this).front();
  SmallVector<Attribute> axes;
  for (StringAttr dim : dimNames(getX().getType()))
    if (dimIndex(getType(), dim) < 0)
      llvm::append_range(axes, context.axes(getX(), dim));
  OpBuilder &builder = context.builder();
  if (!axes.empty())
    local = builder.create<dist::AllReduceOp>(getLoc(), local.getType(), local, builder.getArrayAttr(axes),
                                              builder.getStringAttr("max"));
  return {local};
}
double ReduceMaxOp::flops() { return cast<RankedTensorType>(getX().getType()).getNumElements(); }
void ReduceMaxOp::differentiate(Gradients &) {}

// contract: da = dy b, db = a dy, each contracted over the dimensions that the gradient lacks
FactorKind ContractOp::factorKind(StringRef dim) { return sumOutside(dim, getType()); }
double ContractOp::flops() {
  double product = 2;
  for (auto [dim, size] :
       llvm::zip_equal(dimNames(getA().getType()), cast<RankedTensorType>(getA().getType()).getShape()))
    product *= size;
  for (auto [dim, size] :
       llvm::zip_equal(dimNames(getB().getType()), cast<RankedTensorType>(getB().getType()).getShape()))
    if (dimIndex(getA().getType(), dim) < 0)
      product *= size;
  return product;
}
bool ContractOp::isExpensive() { return true; }
void ContractOp::differentiate(Gradients &g) {
  Value cotangent = g.fullCotangent();
  g.contribute(0, g.builder.create<ContractOp>(g.loc, g.gradientType(0), cotangent, g.operand(1)));
  g.contribute(1, g.builder.create<ContractOp>(g.loc, g.gradientType(1), g.operand(0), cotangent));
}

// accumulate
bool AccumulateOp::passesPartial() { return true; }

// embed: a device looks up the rows of its shard of the table; other rows give 0
FactorKind EmbedOp::factorKind(StringRef dim) {
  return dim == dimNames(getTable().getType()).front() ? FactorKind::Sum : FactorKind::Parallel;
}
SmallVector<Value> EmbedOp::localize(LocalizeContext &context) {
  return cloneWithOrigin(context, *this, "first_row", getTable(), dimNames(getTable().getType()).front());
}
void EmbedOp::differentiate(Gradients &g) {
  RankedTensorType type = withElement(g.operand(0).getType(), g.builder.getF32Type());
  g.contribute(0, g.builder.create<EmbedGradOp>(g.loc, type, g.operand(1), g.fullCotangent(), Attribute()));
}

// embed_grad
FactorKind EmbedGradOp::factorKind(StringRef dim) { return sumOutside(dim, getType()); }
SmallVector<Value> EmbedGradOp::localize(LocalizeContext &context) {
  return cloneWithOrigin(context, *this, "first_row", getResult(), dimNames(getType()).front());
}

// pick
FactorKind PickOp::factorKind(StringRef dim) { return sumOutside(dim, getType()); }
SmallVector<Value> PickOp::localize(LocalizeContext &context) {
  return cloneWithOrigin(context, *this, "first_column", getX(), lastDim(getX()));
}
void PickOp::differentiate(Gradients &g) {
  auto type = withElement(g.operand(0).getType(), g.builder.getF32Type());
  g.contribute(0, g.builder.create<PickGradOp>(g.loc, type, g.operand(1), g.cotangent(), g.operand(0), Attribute()));
}

// pick_grad
SmallVector<Value> PickGradOp::localize(LocalizeContext &context) {
  return cloneWithOrigin(context, *this, "first_column", getLike(), lastDim(getLike()));
}

// mask_tail
SmallVector<Value> MaskTailOp::localize(LocalizeContext &context) {
  return cloneWithOrigin(context, *this, "first_column", getX(), lastDim(getX()));
}
void MaskTailOp::differentiate(Gradients &g) {
  Value cotangent = g.fullCotangent();
  g.contribute(0, g.builder.create<MaskTailOp>(g.loc, cotangent.getType(), cotangent, getValidAttr(),
                                               g.builder.getF64FloatAttr(0), Attribute()));
}

// dropout: linear, so its derivative is itself
SmallVector<Value> DropoutOp::localize(LocalizeContext &context) {
  return withOrigins(context, context.cloneLocal(*this).front().getDefiningOp(), getX());
}
void DropoutOp::differentiate(Gradients &g) {
  Value cotangent = g.fullCotangent();
  g.contribute(0, g.builder.create<DropoutOp>(g.loc, cotangent.getType(), cotangent, getRateAttr(), getIdAttr(),
                                              ArrayAttr(), DenseI64ArrayAttr()));
}

// rope: a rotation, so its derivative is the inverse rotation, of the same amplitude
FactorKind RopeOp::factorKind(StringRef dim) {
  return dim == lastDim(getX()) ? FactorKind::Blocked : FactorKind::Parallel;
}
void RopeOp::differentiate(Gradients &g) {
  Value cotangent = g.fullCotangent();
  auto back = g.builder.create<RopeOp>(g.loc, TypeRange{cotangent.getType()}, ValueRange{cotangent, g.operand(1)});
  back->setAttrs((*this)->getAttrDictionary());
  back.setInverse(!getInverse());
  g.contribute(0, back);
}

// attention: heads, batch and queries are independent, but a query needs all keys. If the sequence is split, keys and
// values are gathered. Their gradients, which each device has for its own queries, are reduce-scattered.
static FactorKind attentionFactor(StringRef dim, Value q, Value v) {
  return dim == lastDim(q) || dim == lastDim(v) ? FactorKind::Blocked : FactorKind::Parallel;
}

static constexpr int64_t sequenceDim = 1;

static ArrayAttr sequenceAxes(LocalizeContext &context, Value global) {
  return context.builder().getArrayAttr(context.axes(global, dimNames(global.getType())[sequenceDim]));
}

/// Returns `type` with `size` positions.
static RankedTensorType withSequence(Type type, int64_t size) {
  auto tensor = cast<RankedTensorType>(type);
  SmallVector<int64_t> shape(tensor.getShape());
  shape[sequenceDim] = size;
  return namedTensor(shape, dimNames(type), tensor.getElementType());
}

/// Returns the local operands of an attention or its derivative, with k and v gathered along the sequence.
static SmallVector<Value> attentionOperands(LocalizeContext &context, Operation *op) {
  SmallVector<Value> operands;
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    operands.push_back(context.operand(i));
  for (unsigned i : {1, 2}) {
    Value global = op->getOperand(i);
    ArrayAttr axes = sequenceAxes(context, global);
    if (axes.empty())
      continue;
    int64_t positions = cast<RankedTensorType>(global.getType()).getDimSize(sequenceDim);
    // Created at the operand's location, so that CSE can merge it with the derivative's gather.
    operands[i] = context.builder().create<dist::AllGatherOp>(
        global.getLoc(), withSequence(operands[i].getType(), positions), operands[i], axes, sequenceDim);
  }
  return operands;
}

double documentTokensOf(Operation *attention) {
  bool isLimited = llvm::TypeSwitch<Operation *, bool>(attention)
                       .Case<AttentionOp, AttentionGradOp>([](auto op) { return op.getVisibleFrom() != nullptr; })
                       .Default(false);
  auto module = attention->getParentOfType<ModuleOp>();
  auto tokens = isLimited && module ? model::documentTokensAttr.of(module) : nullptr;
  return tokens ? tokens.getValueAsDouble() : 0;
}

/// Returns keysSeen of causal attention for documents that begin at each token with probability `rate`, at most `limit`
/// keys each.
static double keysOfDocuments(double queries, double keys, double limit, double rate) {
  // The integral of (1 - exp(-rate x)) / rate from 0 to `position`.
  auto seenBefore = [rate](double position) { return (position + std::expm1(-rate * position) / rate) / rate; };
  double first = keys - queries; // the position of the first query
  double ofLimit = -std::expm1(-rate * limit) / rate;
  return (seenBefore(limit) - seenBefore(std::min(first, limit)) + (keys - std::max(first, limit)) * ofLimit) / queries;
}

double keysSeen(double queries, double keys, bool isCausal, double window, double documentTokens) {
  if (!isCausal)
    return keys;
  if (documentTokens > 0 && documentTokens < keys)
    return keysOfDocuments(queries, keys, window > 0 && window < keys ? window : keys, 1 / documentTokens - 1 / keys);
  double first = keys - queries; // the position of the first query
  if (window <= 0 || window >= keys)
    return keys - queries / 2;
  return first >= window ? window : window - (window - first) * (window - first) / (2 * queries);
}

/// Returns the operations of an attention's products with scores: `ofKeys` products have the columns of q and k,
/// `ofValues` those of v.
template <typename Op> static double attentionFlops(Op op, double ofKeys, double ofValues) {
  auto queries = cast<RankedTensorType>(op.getQ().getType()), values = cast<RankedTensorType>(op.getV().getType());
  auto keys = static_cast<double>(values.getDimSize(sequenceDim));
  double seen = keysSeen(static_cast<double>(queries.getDimSize(sequenceDim)), keys, op.getCausal(),
                         static_cast<double>(op.getWindow().value_or(0)), documentTokensOf(op));
  auto keyColumns = static_cast<double>(queries.getShape().back()),
       valueColumns = static_cast<double>(values.getShape().back());
  double rows = static_cast<double>(queries.getNumElements()) / keyColumns;
  return 2.0 * rows * (ofKeys * keyColumns + ofValues * valueColumns) * seen;
}

FactorKind AttentionOp::factorKind(StringRef dim) { return attentionFactor(dim, getQ(), getV()); }
SmallVector<Value> AttentionOp::localize(LocalizeContext &context) {
  SmallVector<Type> types;
  for (unsigned i = 0; i < (*this)->getNumResults(); ++i)
    types.push_back(context.resultType(i));
  Operation *local = context.cloneWith(*this, attentionOperands(context, *this), types);
  return withOrigins(context, local, getQ());
}
double AttentionOp::flops() { return attentionFlops(*this, 1, 1); }
bool AttentionOp::isExpensive() { return true; }
void AttentionOp::differentiate(Gradients &g) {
  SmallVector<Value> operands = {getQ(), getK(), getV(), getOut(), getLogSumExp(), g.fullCotangent(0)};
  if (getVisibleFrom())
    operands.push_back(getVisibleFrom());
  auto grad = g.builder.create<AttentionGradOp>(g.loc, TypeRange{getQ().getType(), getK().getType(), getV().getType()},
                                                operands);
  grad->setAttrs((*this)->getAttrDictionary());
  for (unsigned i = 0; i < 3; ++i)
    g.contribute(i, grad.getResult(i));
}

// sink_attention: the sink's weight is e^(sink - log_sum_exp), and its value is 0. So its score has the derivative
// -weight cotangent.out, and those of the other scores are as in attention, with the sink in log_sum_exp and out.
void SinkAttentionOp::differentiate(Gradients &g) {
  SmallVector<Value> operands = {getQ(), getK(), getV(), getOut(), getLogSumExp(), g.fullCotangent(0)};
  if (getVisibleFrom())
    operands.push_back(getVisibleFrom());
  auto grad = g.builder.create<AttentionGradOp>(g.loc, TypeRange{getQ().getType(), getK().getType(), getV().getType()},
                                                operands);
  grad->setAttrs((*this)->getAttrDictionary());
  for (unsigned i = 0; i < 3; ++i)
    g.contribute(i, grad.getResult(i));
  Value margin = g.sub(getSinks(), getLogSumExp());
  Value weight = g.builder.create<ExpOp>(g.loc, margin.getType(), margin);
  g.contribute(3, g.neg(g.mul(g.mul(g.cotangent(0), getOut()), weight)));
}

// With the share of the keys, s = e^l / (e^l + e^sink) = logistic(l - sink), out is s times that of attention, and
// log_sum_exp is l - log s.
LogicalResult SinkAttentionOp::canonicalize(SinkAttentionOp op, PatternRewriter &rewriter) {
  SmallVector<Value> operands = {op.getQ(), op.getK(), op.getV()};
  if (op.getVisibleFrom())
    operands.push_back(op.getVisibleFrom());
  auto attend = rewriter.create<AttentionOp>(op.getLoc(), op->getResultTypes(), operands);
  attend->setAttrs(op->getAttrDictionary());
  Type sums = op.getLogSumExp().getType();
  Value margin = rewriter.create<SubOp>(op.getLoc(), sums, attend.getLogSumExp(), op.getSinks());
  Value share = rewriter.create<LogisticOp>(op.getLoc(), sums, margin);
  Value out = rewriter.create<MulOp>(op.getLoc(), op.getOut().getType(), attend.getOut(), share);
  Value logShare = rewriter.create<LogOp>(op.getLoc(), sums, share);
  Value logSumExp = rewriter.create<SubOp>(op.getLoc(), sums, attend.getLogSumExp(), logShare);
  rewriter.replaceOp(op, {out, logSumExp});
  return success();
}

// attend_cache: heads and sequences are independent; a token needs the whole cache of its sequence. On average a token
// attends to half of the context, or to what its window leaves of it.
FactorKind AttendCacheOp::factorKind(StringRef dim) {
  bool isParallel =
      dimIndex(getKeys().getType(), dim) >= 0 && dim != lastDim(getK()) && dim != dimNames(getKeys().getType())[2];
  return isParallel || (dimIndex(getK().getType(), dim) < 0 && dim == dimNames(getQ().getType())[3])
             ? FactorKind::Parallel
             : FactorKind::Blocked;
}
double AttendCacheOp::flops() {
  auto context = static_cast<double>(cast<RankedTensorType>(getKeys().getType()).getDimSize(2));
  auto elements = [](Value value) {
    return static_cast<double>(cast<RankedTensorType>(value.getType()).getNumElements());
  };
  return 2.0 * (elements(getQ()) + elements(getOut())) *
         keysSeen(context, context, /*isCausal=*/true, static_cast<double>(getWindow().value_or(0)));
}
bool AttendCacheOp::isExpensive() { return true; }

// concat: its derivative takes the columns apart, and sums those that all heads share
FactorKind ConcatOp::factorKind(StringRef dim) {
  bool isColumns = dim == lastDim(getA()) || dim == lastDim(getB()) || dim == lastDim(getResult());
  return isColumns ? FactorKind::Blocked : FactorKind::Parallel;
}
void ConcatOp::differentiate(Gradients &g) {
  Value cotangent = g.fullCotangent();
  int64_t first = 0;
  for (unsigned i : {0, 1}) {
    auto type = cast<RankedTensorType>(g.operand(i).getType());
    g.contribute(i, g.builder.create<ColumnsOp>(g.loc, type, cotangent, g.builder.getI64IntegerAttr(first)));
    first += type.getShape().back();
  }
}

// columns
FactorKind ColumnsOp::factorKind(StringRef dim) {
  return dim == lastDim(getX()) || dim == lastDim(getResult()) ? FactorKind::Blocked : sumOutside(dim, getType());
}
bool ColumnsOp::passesPartial() { return true; }

// take_row
FactorKind TakeRowOp::factorKind(StringRef dim) {
  return dim == dimNames(getX().getType())[1] ? FactorKind::Blocked : FactorKind::Parallel;
}

// attention_grad: five products, where forward has two. Those with dout v^T and dv have the columns of v.
FactorKind AttentionGradOp::factorKind(StringRef dim) { return attentionFactor(dim, getQ(), getV()); }
SmallVector<Value> AttentionGradOp::localize(LocalizeContext &context) {
  SmallVector<Value> operands = attentionOperands(context, *this);
  Operation *local = context.cloneWith(*this, operands,
                                       TypeRange{context.resultType(0), operands[1].getType(), operands[2].getType()});
  SmallVector<Value> results = withOrigins(context, local, getQ());
  ArrayAttr axes = sequenceAxes(context, getK());
  for (unsigned i : {1, 2})
    if (!axes.empty())
      results[i] = context.builder().create<dist::ReduceScatterOp>(getLoc(), context.resultType(i), results[i], axes,
                                                                   sequenceDim);
  return results;
}
double AttentionGradOp::flops() { return attentionFlops(*this, 3, 2); }
bool AttentionGradOp::isExpensive() { return true; }

} // namespace espalier::model
