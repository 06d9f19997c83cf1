// Verifies the ops for a plan's tables. A comment at each check names the constraint in ops.td.
#include "dialects/dist/dialect.h"
#include "dialects/exec/dialect.h"

using namespace mlir;

namespace espalier::exec {

namespace {

bool areAxes(ArrayAttr axes) {
  return llvm::all_of(axes.getAsValueRange<StringAttr>(), [](StringRef axis) { return axisBit(axis) != 0; });
}

} // namespace

LogicalResult SegmentOp::verify() {
  int64_t least =
      std::min({static_cast<int64_t>(getParameterBytes()), static_cast<int64_t>(getGradientBytes()),
                static_cast<int64_t>(getStateBytes()), static_cast<int64_t>(getWholeGradientBytes().value_or(0)),
                static_cast<int64_t>(getWholeStoredBytes().value_or(0))});
  if (least < 0) // segment_c1
    return emitOpError("needs bytes of at least 0, got ") << least;
  return success();
}

LogicalResult BucketOp::verify() {
  auto elements = static_cast<int64_t>(getElements()), part = static_cast<int64_t>(getPartElements());
  if (part <= 0 || elements % part != 0) // bucket_c1
    return emitOpError("needs elements in equal parts, got ") << elements << " in parts of " << part;
  if (!areAxes(getPartial()) || !areAxes(getShare())) // bucket_c2
    return emitOpError("needs axes pp, dp, cp, ep or tp, got ") << getPartial() << " and " << getShare();
  return success();
}

LogicalResult ParameterOp::verify() {
  auto local = dyn_cast<RankedTensorType>(getLocal());
  auto sharding = dyn_cast<dist::ShardingAttr>(getSharding());
  size_t rank = local ? local.getRank() : 0;
  if (!local || !sharding || sharding.getDims().size() != rank || getShape().size() != rank ||
      getPaddedShape().size() != rank) // parameter_c1
    return emitOpError("needs a tensor, a sharding and two shapes of one rank, got ")
           << getLocal() << ", " << getSharding() << " and shapes of rank " << getShape().size() << " and "
           << getPaddedShape().size();
  if (!symbolizeInitializer(getInitializer())) // parameter_c2
    return emitOpError("needs initializer zeros, ones or normal, got ") << getInitializer();
  return success();
}

LogicalResult RegionOp::verify() {
  if (!symbolizeRegion(getRegion())) // region_c1
    return emitOpError("needs a region of plan.proto, got ") << getRegion();
  auto offset = static_cast<int64_t>(getOffset()), bytes = static_cast<int64_t>(getBytes());
  if (offset < 0 || bytes < 0) // region_c2
    return emitOpError("needs an offset and bytes of at least 0, got ") << offset << " and " << bytes;
  return success();
}

LogicalResult ValueOp::verify() {
  if (!dataType(getType()) || static_cast<int64_t>(getElements()) < 1) // value_c1
    return emitOpError("needs elements of type f32, bf16, f16 or i32, got ") << getElements() << " of " << getType();
  return success();
}

} // namespace espalier::exec
