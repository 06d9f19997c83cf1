#include "compiler/layout/bucket_values.h"

#include "format/axes.h"

using namespace mlir;

namespace espalier {

std::string storedValue(exec::BucketOp bucket) {
  return (bucket.getName() + (bucket.getShare().empty() ? "" : ".part")).str();
}

std::string scatteredValue(exec::BucketOp bucket) { return (bucket.getName() + ".scattered").str(); }

std::string accumulatedValue(exec::BucketOp bucket) {
  return (bucket.getName() + (bucket.getWholeGradientOffset() ? ".accumulated" : ".gradient")).str();
}

std::string totalValue(exec::BucketOp bucket) {
  uint32_t partial = exec::axisBits(bucket.getPartial()), share = exec::axisBits(bucket.getShare());
  if (share && !bucket.getWholeGradientOffset()) // replicas sum shards after the scatter
    return partial & exec::axisBit(replicateAxis) ? (bucket.getName() + ".replicated").str() : scatteredValue(bucket);
  if (partial & ~share)
    return (bucket.getName() + ".sum").str();
  return bucket.getHolders().empty() ? accumulatedValue(bucket) : (bucket.getName() + ".total").str();
}

std::string parameterValue(exec::ParameterOp parameter) {
  StringRef bucket = parameter.bucket().getName();
  bool ofOther = parameter.bucket().getTied(); // a tied bucket uses its owner's names
  return (bucket + "." + (ofOther ? bucket.split('.').second : parameter.getName())).str();
}

} // namespace espalier
