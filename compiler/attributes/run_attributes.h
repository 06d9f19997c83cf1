// Stores the parts of the run file and the plan that passes read as attributes of the model's module. They are kept to
// the end, so that compilation can resume from the IR of any phase. Readers return defaults for missing attributes.
//   exec.plan = {micro_batches = 4, schedule = "1f1b", stages = [{first_layer = 0, layers = 2, ...}, ...], ...}
//   exec.optimizer = {beta1 = 0.9, ...}, model.runs = [{kind = "embed", count = 1}, ...], model.sizes = {seq = 64, ...}
#pragma once

#include "compiler/import/run/run_config.h"
#include "planner/plan.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Sets these attributes, and `model.parameters` on each segment: properties of parameters that their arguments do not
/// have.
void setRunAttributes(mlir::ModuleOp module, const RunConfig &run, const planner::Plan &plan);

/// Sets `exec.unfused_epilogues`, which fold-epilogues reads, if the run file lists any.
void setUnfusedEpilogues(mlir::ModuleOp module, const RunConfig &run);

/// Returns whether the module has `run_mode: predict`: prefill and decode instead of a training step.
bool generates(mlir::ModuleOp module);
/// Returns whether the module has a backward pass and an optimizer. Generation and evaluation have neither.
bool trains(mlir::ModuleOp module);

/// Returns the parts of the plan that passes after the partition need. The mesh comes from `dist.mesh`.
planner::Plan readPlan(mlir::ModuleOp module);

/// Returns the model's segment runs in order.
std::vector<SegmentRun> readRuns(mlir::ModuleOp module);

/// Returns the optimizer's settings.
OptimizerConfig readOptimizer(mlir::ModuleOp module);
/// Returns the type in which gradients of a parameter are accumulated and reduced: `model.gradient_type`, else f32. It
/// is f32 for a parameter with a sign rate, because its gradient counts tokens, and 16 bits do not hold large counts.
mlir::Type readGradientType(mlir::ModuleOp module, bool hasSignRate);
/// Returns whether the optimizer keeps f32 master copies of parameters that are stored in another type.
bool readMasters(mlir::ModuleOp module);

} // namespace espalier
