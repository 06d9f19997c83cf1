// Decides where sharded parameters are gathered: before the first RUN that reads them, and again after another layer
// call has reused their ring slot.
#pragma once

#include "compiler/link/add_buckets.h"
#include "dialects/exec/dialect.h"

namespace espalier {

/// A RUN of a single layer call.
struct CallRun {
  exec::Role role;
  int chunk;
  uint32_t call, microBatch;
};

/// The all-gather of a bucket for one RUN.
struct BucketGather {
  int64_t transfer;
  int chunk; ///< chunk of the layer call that updates the bucket
  uint32_t call, microBatch;
};

/// Gathers by RUN: those to start before the RUN, as soon as the previous RUN has ended, and those to wait for.
struct Gathers {
  std::vector<std::vector<BucketGather>> starts, waits;
};

/// An allocation and its ring slot.
using WholeSlot = std::pair<uint32_t, uint32_t>;

/// Returns the allocation and ring slot that hold a layer call's gathered buffer of `region`.
WholeSlot wholeSlot(const rt::pb::Stage &stage, uint32_t call, exec::Region region);

/// Returns the gathers of an entry that executes `runs`. No gather starts more than two RUNs ahead of its reader.
Gathers placeGathers(const rt::pb::Stage &stage, const rt::pb::Plan &plan, llvm::ArrayRef<BucketTransfers> buckets,
                     llvm::ArrayRef<CallRun> runs);

} // namespace espalier
