// A compilation that goes on with the IR of one phase.
#pragma once

#include "compiler/driver.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace espalier {

/// Sets what every phase's IR says of its compilation: the attributes of compiler/plan/run_attributes.h, `exec.target`
/// and `exec.guard_bytes`.
void labelRun(mlir::ModuleOp module, const RunConfig &run, const planner::Plan &plan, const CompileOptions &options);

/// Notes after which phase the module is this, and its functions, kernels and programs: `model.phase`, `model.symbols`.
void labelPhase(mlir::ModuleOp module, llvm::StringRef phase);

/// The IR of `phase` in `file`, to go on with; earlier phases need not run. A file that cannot be read, that is no
/// valid IR, that is of another phase, run, plan or target, or that lacks a symbol which it had is reported as a
/// diagnostic with its place; the result is then null.
mlir::OwningOpRef<mlir::ModuleOp> readPhase(mlir::MLIRContext &context, llvm::StringRef file, llvm::StringRef phase,
                                            const RunConfig &run, const planner::Plan &plan,
                                            const CompileOptions &options);

} // namespace espalier
