// Rules of the ops of mixture-of-experts layers. Tokens of a sample compete for an expert's slots, so only batch can be
// split where tokens are routed and moved, unless there is a slot for each token. Then ranks with parts of a sequence
// each have slots for their tokens. Experts are split between dispatch and combine.
#include "dialects/model/dialect.h"

using namespace mlir;

namespace espalier::model {

using Gradients = GradientBuilder;

static int64_t lastSize(Value value) { return cast<RankedTensorType>(value.getType()).getShape().back(); }

/// Samples are independent, and the elements of a row move together, so batch and hidden can be split, and the tokens
/// of a sequence with the slots of experts if there are as many. `experts` is [expert, batch, capacity, hidden].
static FactorKind movedFactor(StringRef dim, Value ids, Value experts) {
  ArrayRef<StringAttr> tokens = dimNames(ids.getType()), slots = dimNames(experts.getType());
  bool isDropless = lastSize(ids) == cast<RankedTensorType>(experts.getType()).getDimSize(2);
  bool isSplittable =
      dim == tokens[1] || dim == slots.back() || (isDropless && (dim == tokens.back() || dim == slots[2]));
  return isSplittable ? FactorKind::Parallel : FactorKind::Blocked;
}

/// Returns [choice, batch, seq, hidden]: the expert row of each choice of each token.
static Value rowsOfChoices(Gradients &g, Value ids, Value slots, Value experts) {
  auto places = cast<RankedTensorType>(ids.getType()), rows = cast<RankedTensorType>(experts.getType());
  SmallVector<StringAttr> dims(dimNames(places));
  SmallVector<int64_t> shape(places.getShape());
  dims.push_back(dimNames(rows).back());
  shape.push_back(rows.getShape().back());
  return g.builder.create<CombineOp>(g.loc, namedTensor(shape, dims, rows.getElementType()), ids, slots, experts,
                                     Value());
}

// route
FactorKind RouteOp::factorKind(StringRef dim) {
  ArrayRef<StringAttr> dims = dimNames(getScores().getType());
  bool isDropless = static_cast<int64_t>(getCapacity()) == lastSize(getIds());
  return dim == dims.front() || (isDropless && dim == dims[1]) ? FactorKind::Parallel : FactorKind::Blocked;
}
SmallVector<Value> RouteOp::localize(LocalizeContext &context) {
  SmallVector<Value> results = context.cloneLocal(*this);
  if (lastSize(results.front()) != lastSize(getIds())) // a slot for each token of this rank
    cast<RouteOp>(results.front().getDefiningOp()).setCapacity(lastSize(results.front()));
  return results;
}

// dispatch: dx = combine dy, dw = x . dy
FactorKind DispatchOp::factorKind(StringRef dim) { return movedFactor(dim, getIds(), getResult()); }
void DispatchOp::differentiate(Gradients &g) {
  Value cotangent = g.fullCotangent();
  g.contribute(2, g.builder.create<CombineOp>(g.loc, g.gradientType(2), getIds(), getSlots(), cotangent, getWeights()));
  if (getWeights())
    g.contribute(3, g.mul(rowsOfChoices(g, getIds(), getSlots(), cotangent), getX()));
}

// combine: dx = dispatch dy, dw = x . dy
FactorKind CombineOp::factorKind(StringRef dim) { return movedFactor(dim, getIds(), getX()); }
void CombineOp::differentiate(Gradients &g) {
  Value cotangent = g.fullCotangent();
  g.contribute(2,
               g.builder.create<DispatchOp>(g.loc, g.gradientType(2), getIds(), getSlots(), cotangent, getWeights()));
  if (getWeights())
    g.contribute(3, g.mul(rowsOfChoices(g, getIds(), getSlots(), getX()), cotangent));
}

} // namespace espalier::model
