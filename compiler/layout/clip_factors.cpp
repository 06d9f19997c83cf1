#include "compiler/layout/clip_factors.h"

using namespace mlir;

namespace espalier {

namespace {

/// Element-wise ops on one shape and numbers.
struct Arithmetic {
  RegionFunction &f;
  Type type;

  Value number(double value) const {
    return f.b.create<model::ConstantOp>(f.loc, namedTensor({}, {}, f.b.getF32Type()), f.b.getF64FloatAttr(value));
  }
  template <typename Op> Value unary(Value x) const { return f.b.create<Op>(f.loc, type, x); }
  template <typename Op> Value binary(Value x, Value y) const { return f.b.create<Op>(f.loc, type, x, y); }
  Value select(Value condition, Value x, Value y) const {
    return f.b.create<model::SelectOp>(f.loc, type, condition, x, y);
  }
};

} // namespace

ClipFactors::ClipFactors(RegionFunction &f, exec::SegmentOp segment, double threshold) : f(f) {
  for (exec::BucketOp bucket : segment.buckets())
    if (exec::BucketClipAttr clip = bucket.getClipAttr(); clip && !gammas.contains(clip.getCounter().str()))
      gammas[clip.getCounter().str()] = reduce(clip, threshold);
}

/// Returns the factors of heads. The counter's result is the negated maxima, which the next step's scores replace.
Value ClipFactors::reduce(exec::BucketClipAttr clip, double threshold) {
  Arithmetic on{f, namedTensor({clip.getHeads()}, {f.b.getStringAttr(clip.getDim())}, f.b.getF32Type())};
  StringRef counter = clip.getCounter();
  Value largest = f.argument(on.type, "counter", counter);
  if (!clip.getAxes().empty())
    largest = f.b.create<dist::AllReduceOp>(f.loc, on.type, largest, f.axes(clip.getAxes()), f.b.getStringAttr("max"));
  Value isAboveZero = on.unary<model::StepOp>(largest);
  f.result(on.select(isAboveZero, on.unary<model::NegOp>(largest), on.number(0)), "counter", counter);
  Value isClipped = on.unary<model::StepOp>(on.binary<model::SubOp>(largest, on.number(threshold)));
  return on.select(isClipped, on.binary<model::DivOp>(on.number(threshold), largest), on.number(1));
}

Value ClipFactors::of(exec::BucketOp bucket) const {
  exec::BucketClipAttr clip = bucket.getClipAttr();
  double exponent = clip ? double(clip.getExponent()) : 0;
  if (exponent == 0)
    return {};
  Value gamma = gammas.at(clip.getCounter().str());
  Arithmetic on{f, gamma.getType()};
  Value factor =
      exponent == 1 ? gamma
      : exponent == 0.5
          ? on.unary<model::SqrtOp>(gamma)
          : on.unary<model::ExpOp>(on.binary<model::MulOp>(on.unary<model::LogOp>(gamma), on.number(exponent)));
  // The verifier of plans lets a copy change dimensions into those whose names begin with `element`. The names of each
  // bucket differ, so that no kernel updates two buckets because they have equal factors.
  auto tensor = [&](ArrayRef<int64_t> shape, ArrayRef<StringRef> names) {
    SmallVector<StringAttr> dims;
    for (StringRef name : names)
      dims.push_back(f.b.getStringAttr(name + Twine(bucket.getNumber())));
    return namedTensor(shape, dims, f.b.getF32Type());
  };
  int64_t heads = clip.getHeads(), columns = clip.getColumns(), rows = bucket.getPartElements() / (heads * columns);
  Value ofHead = f.b.create<model::ViewOp>(f.loc, tensor({heads}, {"element_head"}), factor);
  Value ofRow = f.b.create<model::BroadcastOp>(
      f.loc, tensor({rows, heads, columns}, {"element_row", "element_head", "element_column"}), ofHead);
  return f.b.create<model::ViewOp>(f.loc, f.flat(bucket.getPartElements(), f.b.getF32Type()), ofRow);
}

} // namespace espalier
