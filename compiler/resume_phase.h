// A compilation resumed from the IR of one phase.
#pragma once

#include "compiler/import/run_config.h"
#include "planner/plan.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace espalier {

/// Notes in the module what it is the IR of: `model.phase`, `model.plan` and `model.sizes`.
void labelPhase(mlir::ModuleOp module, llvm::StringRef phase, const RunConfig &run, const planner::Plan &plan);

/// The IR in `file`, to go on with in place of `fresh`, which the run file gives after the same phase. What later
/// phases take from outside of the IR was derived together with `fresh`; it holds for the file too where labels,
/// functions with their types and attributes, and programs are the same. A file that cannot be read, that is no valid
/// IR or that differs there is reported as a diagnostic with its place; the result is then null.
mlir::OwningOpRef<mlir::ModuleOp> readPhase(mlir::ModuleOp fresh, llvm::StringRef file);

} // namespace espalier
