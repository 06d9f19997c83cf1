// Adds buckets to the plan: their parameters, their values, and the transfers that reduce and gather them.
#pragma once

#include "compiler/layout/bucket_values.h"
#include "compiler/link/plan_tables.h"

#include "format/plan.pb.h"

namespace espalier {

/// The transfers of a bucket, as indices into the plan's transfers.
struct BucketTransfers {
  std::vector<uint32_t> sums; ///< run once per step, in the order in which they start
  int64_t scatter = -1;       ///< reduce-scatter of a micro-batch's gradient, if accumulators are sharded; else -1
  int64_t gather = -1; ///< all-gather of the shards, after the update or before layer calls that read them; else -1
};

/// Adds the buckets of all segments of a module with their values to `out`. Adds gradients, optimizer state and
/// transfers only if the plan trains. The result is indexed by bucket number.
std::vector<BucketTransfers> addBuckets(mlir::ModuleOp module, bool trains, PlanTables &tables, rt::pb::Plan &out);

} // namespace espalier
