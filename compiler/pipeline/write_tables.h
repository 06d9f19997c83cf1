// Messages of the run plan as ops of the exec dialect: how the passes of this folder write down what their algorithms
// decided. compiler/codegen/emit_tables.h and emit_stages.h read the same back, field by field.
#pragma once

#include "runtime/plan.pb.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Replaces the module's values, and adds queues, entries and transfers, as `plan` has them.
void writeTables(const rt::pb::Plan &plan, mlir::ModuleOp module);

/// Adds a stage without its lists.
void writeStage(const rt::pb::Plan &plan, const rt::pb::Stage &stage, mlir::OpBuilder &builder);
/// Adds the lists of `stage` behind what the builder stands in, which is its op.
void writeLists(const rt::pb::Plan &plan, const rt::pb::Stage &stage, mlir::OpBuilder &builder);

} // namespace espalier
