// Writes messages of the run plan as ops of the exec dialect. The passes of this folder record their results this way.
// compiler/link/emit_tables.h reads the ops back, field by field.
#pragma once

#include "runtime/plan.pb.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Replaces the module's values and adds the queues, entries and transfers of `plan`.
void writeTables(const rt::pb::Plan &plan, mlir::ModuleOp module);

/// Adds a stage without its schedules.
void writeStage(const rt::pb::Plan &plan, const rt::pb::Stage &stage, mlir::OpBuilder &builder);
/// Adds the schedules of `stage` at the builder's insertion point, which must be inside the stage's op.
void writeLists(const rt::pb::Plan &plan, const rt::pb::Stage &stage, mlir::OpBuilder &builder);

} // namespace espalier
