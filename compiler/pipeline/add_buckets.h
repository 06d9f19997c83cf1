// Buckets as the plan has them: their parameters, values, and the transfers that sum, share and gather them.
#pragma once

#include "compiler/codegen/plan_tables.h"
#include "compiler/pipeline/segment_layout.h"

#include "runtime/plan.pb.h"

namespace espalier {

/// Name of the value that a bucket's stored parameters are, of the rank's own share of them where there are shares.
std::string storedValue(const SegmentBucket &bucket);
/// Name of the value that the bucket's gradients are once they are summed over all ranks, as storedValue.
std::string totalValue(const SegmentBucket &bucket);
/// Names of the rank's own share of the gradient where shares are accumulated: of a micro-batch, and of those so far.
std::string scatteredValue(const SegmentBucket &bucket);
std::string accumulatedValue(const SegmentBucket &bucket);
/// Name of the value of one stored parameter; its gradient's has ".gradient" behind it.
std::string parameterValue(const SegmentLayout &segment, const SegmentParameter &parameter);

/// Transfers of a bucket, by number in the plan.
struct BucketTransfers {
  std::vector<uint32_t> sums; ///< once a step, in the order in which they are started
  int64_t scatter = -1;       ///< of a micro-batch's gradient, where accumulators are shares
  int64_t gather = -1;        ///< of the shares: behind the update, or before calls that read them
};

/// The mesh axes, as the plan's bits.
uint32_t axisBits(llvm::ArrayRef<mlir::StringAttr> axes);

/// Adds the buckets of all segments, without gradients and state unless the plan trains; of values that are there it
/// takes the numbers.
void emitBuckets(const std::vector<SegmentLayout> &segments, bool trains, PlanTables &tables, rt::pb::Plan &out);
/// The same of a plan that trains, with their values and transfers; the result is by number of the bucket.
std::vector<BucketTransfers> addBuckets(const std::vector<SegmentLayout> &segments, PlanTables &tables,
                                        rt::pb::Plan &out);

} // namespace espalier
