// Where parameters that lie in parts are gathered: before the first RUN that reads them, and again once the calls that
// take turns with theirs in a slot have taken it.
#pragma once

#include "compiler/pipeline/add_buckets.h"
#include "dialects/exec/dialect.h"

namespace espalier {

/// A RUN of one call.
struct CallRun {
  exec::Role role;
  int chunk;
  uint32_t call, microBatch;
};

/// The gather of a bucket for a RUN.
struct BucketGather {
  int64_t transfer;
  int chunk; ///< of the call that updates the bucket
  uint32_t call, microBatch;
};

/// By RUN: what sets out before it, as soon as the RUN before has ended, and what must have come.
struct Gathers {
  std::vector<std::vector<BucketGather>> starts, waits;
};

/// A place and its slot.
using WholeSlot = std::pair<uint32_t, uint32_t>;

/// Where a call finds what is whole for a while.
WholeSlot wholeSlot(const rt::pb::Stage &stage, uint32_t call, exec::Region region);

/// The gathers of an entry that goes through these RUNs. None sets out more than two RUNs ahead.
Gathers placeGathers(const rt::pb::Stage &stage, const rt::pb::Plan &plan, llvm::ArrayRef<BucketTransfers> buckets,
                     llvm::ArrayRef<CallRun> runs);

} // namespace espalier
