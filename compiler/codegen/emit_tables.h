// What a plan says once, and its stages: ops of the exec dialect as messages of the run plan, field by field.
#pragma once

#include "runtime/plan.pb.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Roles, regions, queues, entries, values and transfers, numbered in the order in which the module lists them; of a
/// module that lists none only roles and regions.
void emitTables(mlir::ModuleOp module, rt::pb::Plan &plan);

/// The stages, with their lists where they have some. The plan has tables and subprograms. A name that it does not have
/// is reported on the op.
mlir::LogicalResult emitStages(mlir::ModuleOp module, rt::pb::Plan &plan);

} // namespace espalier
