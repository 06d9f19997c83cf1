// Emits the tables and stages of a plan: ops of the exec dialect as messages of the run plan, field by field.
#pragma once

#include "runtime/plan.pb.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Emits roles, regions, queues, entries, values and transfers, numbered in the order in which the module lists them.
/// If the module lists none, emits only roles and regions.
void emitTables(mlir::ModuleOp module, rt::pb::Plan &plan);

/// Emits the stages, including their schedules if they have them. `plan` must already have tables and subprograms.
/// Reports a name that the plan does not have on the op that uses it.
mlir::LogicalResult emitStages(mlir::ModuleOp module, rt::pb::Plan &plan);

} // namespace espalier
