// The ops of segments, buckets and parameters. A comment at each check names the constraint in ops.td.
#include "dialects/attributes.h"
#include "dialects/exec/dialect.h"
#include "format/optimizers.h"

using namespace mlir;

namespace espalier::exec {

static bool areAxes(ArrayRef<StringAttr> axes) {
  return llvm::all_of(axes, [](StringAttr axis) { return axisBit(axis) != 0; });
}

SegmentOp findSegment(ModuleOp module, StringRef kind) {
  for (auto segment : module.getOps<SegmentOp>())
    if (segment.getKind() == kind)
      return segment;
  return {};
}

LogicalResult SegmentOp::verify() {
  int64_t least = std::min(
      {getParameterBytes(), getGradientBytes(), getStateBytes(), getWholeGradientBytes(), getWholeStoredBytes()});
  if (least < 0) // segment_c1
    return emitOpError("needs bytes of at least 0, got ") << least;
  return success();
}

std::vector<BucketOp> SegmentOp::buckets() {
  auto all = getOps<BucketOp>();
  return {all.begin(), all.end()};
}

std::vector<ParameterOp> SegmentOp::parameters() {
  std::vector<ParameterOp> all;
  for (BucketOp bucket : buckets())
    llvm::append_range(all, bucket.parameters());
  return all;
}

template <typename Op> static Op named(const std::vector<Op> &ops, StringRef name) {
  auto found = llvm::find_if(ops, [&](Op op) { return op.getName() == name; });
  return found == ops.end() ? Op() : *found;
}

BucketOp SegmentOp::bucket(StringRef name) { return named(buckets(), name); }

ParameterOp SegmentOp::parameter(StringRef name) { return named(parameters(), name); }

LogicalResult BucketOp::verify() {
  int64_t part = getPartElements();
  if (part <= 0 || getElements() % part != 0) // bucket_c1
    return emitOpError("needs elements in equal parts, got ") << getElements() << " in parts of " << part;
  if (!areAxes(getPartial()) || !areAxes(getShare())) // bucket_c2
    return emitOpError("needs axes pp, dp, cp, ep or tp, got ") << getPartialAttr() << " and " << getShareAttr();
  if (getFrozen() && (!getPartial().empty() || getWholeGradientOffset())) // bucket_c3
    return emitOpError("is frozen and needs no partial axes and no whole gradients, got ") << getPartialAttr();
  if (!rt::findOptimizer(getOptimizer())) // bucket_c5
    return emitOpError("needs an optimizer of format/optimizers.h, got ") << getOptimizer();
  if ((getOptimizer() == "Sign") != (getSignRate() > 0)) // bucket_c6
    return emitOpError("needs a sign_rate above 0 for the optimizer Sign alone, got ") << getSignRate();
  for (ArrayAttr axes : {getRowAxesAttr(), getColumnAxesAttr()})
    if (axes && !axes.empty() &&
        (getMatrix().empty() || !areAxes(llvm::to_vector(axes.getAsRange<StringAttr>())))) // bucket_c7
      return emitOpError("needs a matrix and axes pp, dp, cp, ep or tp for its rows and columns, got ") << axes;
  int64_t matrix = 1;
  for (int64_t size : getMatrix())
    matrix *= size;
  if (matrix <= 0 || part % matrix != 0) // bucket_c4
    return emitOpError("needs parts of whole matrices, got parts of ")
           << part << " elements and matrices of " << matrix;
  if (BucketClipAttr clip = getClipAttr();
      clip && (!areAxes(clip.getAxes()) || clip.getHeads() < 1 || clip.getColumns() < 1 ||
               part % clip.getHeads() != 0 || part / clip.getHeads() % clip.getColumns() != 0)) // bucket_c8
    return emitOpError("needs a clip with heads, columns and axes of a mesh, and parts of whole rows, got ")
           << clip << " and parts of " << part << " elements";
  return success();
}

std::vector<ParameterOp> BucketOp::parameters() {
  auto all = getOps<ParameterOp>();
  return {all.begin(), all.end()};
}

const rt::OptimizerRow &BucketOp::optimizerRow() { return *rt::findOptimizer(getOptimizer()); }

SmallVector<StringRef> BucketOp::stateParts() {
  SmallVector<StringRef> parts;
  if ((*this)->getParentOfType<SegmentOp>().getMasters())
    parts.push_back(rt::masterKind);
  llvm::append_range(parts, optimizerRow().states);
  return parts;
}

Type BucketOp::gradientType() { return getSummed().value_or(Float32Type::get(getContext())); }

int64_t BucketOp::wholeSize(int side) {
  auto mesh = dist::meshAttr.of((*this)->getParentOfType<ModuleOp>());
  return getMatrix()[side] * (mesh ? mesh.size(sideAxes(side)) : 1);
}

LogicalResult ParameterOp::verify() {
  size_t rank = getLocal().getRank();
  if (getSharding().getDims().size() != rank || getShape().size() != rank ||
      getPaddedShape().size() != rank) // parameter_c1
    return emitOpError("needs a tensor, a sharding and two shapes of one rank, got ")
           << getLocal() << ", " << getSharding() << " and shapes of rank " << getShape().size() << " and "
           << getPaddedShape().size();
  if (!symbolizeInitializer(getInitializer())) // parameter_c2
    return emitOpError("needs initializer zeros, ones or normal, got ") << getInitializer();
  return success();
}

BucketOp ParameterOp::bucket() { return cast<BucketOp>((*this)->getParentOp()); }

uint32_t ParameterOp::axes() {
  uint32_t bits = 0;
  for (ArrayAttr dim : getSharding().getDims())
    bits |= axisBits(dim);
  return bits;
}

int64_t ParameterOp::storedOffset() {
  return bucket().getWholeStoredOffset().value_or(bucket().getStoredOffset()) + getFirst() * bucket().storedWidth();
}

int64_t ParameterOp::gradientOffset() {
  return bucket().getWholeGradientOffset().value_or(bucket().getGradientOffset()) +
         getFirst() * bucket().gradientWidth();
}

} // namespace espalier::exec
