// Adds buckets to the plan: their parameters, their values, and the transfers that reduce and gather them.
#pragma once

#include "compiler/layout/segment_layout.h"
#include "compiler/link/plan_tables.h"

#include "runtime/plan.pb.h"

namespace espalier {

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

/// The transfers of a bucket, as indices into the plan's transfers.
struct BucketTransfers {
  std::vector<uint32_t> sums; ///< run once per step, in the order in which they start
  int64_t scatter = -1;       ///< reduce-scatter of a micro-batch's gradient, if accumulators are sharded; else -1
  int64_t gather = -1; ///< all-gather of the shards, after the update or before layer calls that read them; else -1
};

/// Returns the mesh axes as the bit set that the plan uses.
uint32_t axisBits(llvm::ArrayRef<mlir::StringAttr> axes);

/// Adds the buckets of all segments with their values to `out`. Adds gradients, optimizer state and transfers only if
/// the plan trains. The result is indexed by bucket number.
std::vector<BucketTransfers> addBuckets(const std::vector<SegmentLayout> &segments, bool trains, PlanTables &tables,
                                        rt::pb::Plan &out);

} // namespace espalier
