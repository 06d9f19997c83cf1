// The names of a bucket's values in the plan.
#pragma once

#include "compiler/layout/segment_layout.h"

namespace espalier {

/// Returns the mesh axes as the bit set that the plan uses.
uint32_t axisBits(llvm::ArrayRef<mlir::StringAttr> axes);

/// Returns the name of the value that holds a bucket's stored parameters. If the bucket is sharded (ZeRO), this is the
/// rank's own shard.
std::string storedValue(const SegmentBucket &bucket);
/// Returns the name of the value that holds a bucket's gradients after the reduction over all ranks. If the bucket is
/// sharded, this is the rank's own shard.
std::string totalValue(const SegmentBucket &bucket);
/// Return the names of a rank's gradient shard if gradients are accumulated in shards: the shard of one micro-batch,
/// and the accumulated shard.
std::string scatteredValue(const SegmentBucket &bucket);
std::string accumulatedValue(const SegmentBucket &bucket);
/// Returns the name of the value of one stored parameter. The name of its gradient has the suffix ".gradient".
std::string parameterValue(const SegmentLayout &segment, const SegmentParameter &parameter);

} // namespace espalier
