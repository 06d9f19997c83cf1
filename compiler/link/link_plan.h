// Links an exec module into a run plan. The module holds kernels, programs, segments with their buckets and parameters,
// and the sizes of regions. Everything else in a plan is data that no pass transforms, so it is built here as the
// plan's protobuf messages, in one reading of the module:
//   - queues, entries, values and transfers (add_transfers, generation), buckets (add_buckets)
//   - programs and kernels (emit_programs)
//   - stages: layer calls, live ranges, allocations, instruction streams (build_stages, generation_stages)
//   - communicators of the transfers that streams start
#pragma once

#include "format/plan.pb.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Fills all tables of `plan` that follow from the module, except machine code. Reports an error on the module if an
/// earlier pass has not run.
mlir::LogicalResult linkPlan(mlir::ModuleOp module, rt::pb::Plan &plan);

} // namespace espalier
