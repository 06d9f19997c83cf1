// What programs of a test refer to: there is no schedule, and nothing has formed buckets.
#pragma once

#include "runtime/plan.pb.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace espalier::test {

void addQueues(rt::pb::Plan &plan);

/// Puts the accumulators of a function in a bucket, whose sums then begin with the first micro-batch.
void putInBuckets(mlir::func::FuncOp function);

} // namespace espalier::test
