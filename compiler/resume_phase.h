// Resumes a compilation from the IR of one phase.
#pragma once

#include "compiler/driver.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace espalier {

/// Sets the attributes by which every phase's IR identifies its compilation: those of
/// compiler/attributes, `exec.target` and `exec.guard_bytes`.
void labelRun(mlir::ModuleOp module, const RunConfig &run, const planner::Plan &plan, const CompileOptions &options);

/// Records the phase of the module and its functions, kernels and programs in `model.phase` and `model.symbols`.
void labelPhase(mlir::ModuleOp module, llvm::StringRef phase);

/// Reads the IR of `phase` from `file`, so that earlier phases need not run. Returns null and reports a diagnostic with
/// its location if the file cannot be read, is not valid IR, lacks a recorded symbol, or belongs to another phase, run,
/// plan or target.
mlir::OwningOpRef<mlir::ModuleOp> readPhase(mlir::MLIRContext &context, llvm::StringRef file, llvm::StringRef phase,
                                            const RunConfig &run, const planner::Plan &plan,
                                            const CompileOptions &options);

} // namespace espalier
