// Rules of the ops of mixture-of-experts layers. Tokens of a sample compete for an expert's slots, so only batch can be
// split where tokens are routed and moved. Experts are split between dispatch and combine.
#include "dialects/model/dialect.h"

using namespace mlir;

namespace espalier::model {

using Gradients = GradientBuilder;

/// Samples are independent, and the elements of a row move together, so batch and hidden can be split.
static FactorKind movedFactor(StringRef dim, Value ids, Value rows) {
  bool isSplittable = dim == dimNames(ids.getType())[1] || dim == dimNames(rows.getType()).back();
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
  return dim == dimNames(getScores().getType()).front() ? FactorKind::Parallel : FactorKind::Blocked;
}

// dispatch: dx = combine dy, dw = x . dy
FactorKind DispatchOp::factorKind(StringRef dim) { return movedFactor(dim, getIds(), getX()); }
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
