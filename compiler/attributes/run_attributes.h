// Stores the parts of the run file and the plan that passes read as attributes of the model's module, and reads them.
// They are kept to the end, so that compilation can resume from the IR of any phase. dialects/SPEC.md lists them.
#pragma once

#include "compiler/import/run/run_config.h"
#include "dialects/attributes.h"
#include "dialects/exec/dialect.h"
#include "planner/plan.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Sets `exec.plan` and the attributes of the run on the module, and `model.parameters` on each segment: properties of
/// parameters that their arguments do not have.
void setRunAttributes(mlir::ModuleOp module, const RunConfig &run, const planner::Plan &plan);

/// Sets `exec.unfused_epilogues`, which fold-epilogues reads, if the run file lists any.
void setUnfusedEpilogues(mlir::ModuleOp module, const RunConfig &run);

/// Returns the module's `exec.plan` on the axes of `dist.mesh`. Reports an error if one of them is missing, or names an
/// unknown schedule or policy.
mlir::FailureOr<planner::Plan> readPlan(mlir::ModuleOp module);

/// Returns the model's segment runs in order.
std::vector<SegmentRun> readRuns(mlir::ModuleOp module);

/// Returns the type in which gradients of a parameter are accumulated and reduced: `model.gradient_type`, else f32. It
/// is f32 for a parameter with a sign rate, because its gradient counts tokens, and 16 bits do not hold large counts.
mlir::Type readGradientType(mlir::ModuleOp module, bool hasSignRate);

} // namespace espalier
