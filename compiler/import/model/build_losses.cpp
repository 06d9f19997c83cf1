#include "compiler/import/model/build_losses.h"

using namespace mlir;

namespace espalier {

Value summedLosses(PrimitiveBuilder &p, ArrayRef<Value> in, int64_t vocabulary) {
  Value logits = in[0], labels = in[1], weights = in[2];
  if (cast<RankedTensorType>(logits.getType()).getShape().back() != vocabulary)
    logits = p.b.create<model::MaskTailOp>(p.loc, logits.getType(), logits, p.b.getI64IntegerAttr(vocabulary),
                                           p.b.getF64FloatAttr(-30000), Attribute());
  Value maximum = p.reduceLast<model::ReduceMaxOp>(logits);
  Value powers = p.unary<model::ExpOp>(p.binary<model::SubOp>(logits, maximum));
  Value logSum = p.binary<model::AddOp>(p.unary<model::LogOp>(p.reduceLast<model::ReduceSumOp>(powers)), maximum);
  Value picked = p.b.create<model::PickOp>(p.loc, withElement(labels.getType(), p.f32), logits, labels, Attribute());
  return p.sumAll(p.binary<model::MulOp>(p.binary<model::SubOp>(logSum, picked), weights));
}

} // namespace espalier
