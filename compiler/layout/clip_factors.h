// The factors of QK-clip (Kimi K2, 2025): after an update, the query and key weights of a head whose largest attention
// score of the step is above a threshold are scaled down.
#pragma once

#include "compiler/layout/region_function.h"
#include "dialects/exec/dialect.h"

#include <map>

namespace espalier {

/// The factors of all heads of a segment's attentions.
class ClipFactors {
public:
  /// Adds the counters of the segment to `f`, and reduces them over the ranks. The results are the counters for the
  /// next step.
  ClipFactors(RegionFunction &f, exec::SegmentOp segment, double threshold);

  /// Returns the factor of each element of the rank's shard of the bucket, or null if they are all 1.
  mlir::Value of(exec::BucketOp bucket) const;

private:
  mlir::Value reduce(exec::BucketClipAttr clip, double threshold);

  RegionFunction &f;
  std::map<std::string, mlir::Value> gammas; ///< by counter: threshold / largest score, at most 1, of each head
};

} // namespace espalier
