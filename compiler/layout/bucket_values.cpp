#include "compiler/layout/bucket_values.h"

#include "dialects/exec/dialect.h"
#include "format/axes.h"

using namespace mlir;

namespace espalier {

uint32_t axisBits(ArrayRef<StringAttr> axes) {
  uint32_t bits = 0;
  for (StringAttr axis : axes)
    bits |= exec::axisBit(axis);
  return bits;
}

std::string storedValue(const SegmentBucket &bucket) {
  return bucket.shareAxes.empty() ? bucket.name : bucket.name + ".part";
}

std::string scatteredValue(const SegmentBucket &bucket) { return bucket.name + ".scattered"; }

std::string accumulatedValue(const SegmentBucket &bucket) {
  return bucket.name + (bucket.wholeGradientOffset ? ".accumulated" : ".gradient");
}

/// Returns whether shards of gradients are summed over replicas after the scatter.
static bool isReplicated(const SegmentBucket &bucket) {
  return !bucket.shareAxes.empty() && (axisBits(bucket.partialAxes) & exec::axisBit(replicateAxis));
}

std::string totalValue(const SegmentBucket &bucket) {
  if (!bucket.shareAxes.empty() && !bucket.wholeGradientOffset)
    return isReplicated(bucket) ? bucket.name + ".replicated" : scatteredValue(bucket);
  if (axisBits(bucket.partialAxes) & ~axisBits(bucket.shareAxes))
    return bucket.name + ".sum";
  return bucket.holders.empty() ? accumulatedValue(bucket) : bucket.name + ".total";
}

std::string parameterValue(const SegmentLayout &segment, const SegmentParameter &parameter) {
  const SegmentBucket &bucket = segment.bucketOf(parameter);
  bool ofOther = bucket.isTied; // a tied bucket uses its owner's names
  return bucket.name + "." + (ofOther ? StringRef(bucket.name).split('.').second.str() : parameter.name);
}

} // namespace espalier
