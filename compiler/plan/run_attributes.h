// What passes read of the run file and of the plan, as attributes of the model's module: they stay to the end, so that
// every phase can go on from its IR. Readers give the defaults of what is not there.
//   exec.plan = {micro_batches = 4, schedule = "1f1b", stages = [{first_layer = 0, layers = 2, ...}, ...], ...}
//   exec.optimizer = {beta1 = 0.9, ...}, model.runs = [{kind = "embed", count = 1}, ...], model.sizes = {seq = 64, ...}
#pragma once

#include "compiler/import/run_config.h"
#include "planner/plan.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Sets these attributes, and on each segment `model.parameters`: what a parameter's argument does not say of it.
void setRunAttributes(mlir::ModuleOp module, const RunConfig &run, const planner::Plan &plan);

/// Sets `exec.unfused_epilogues`, which fold-epilogues reads, where the run file names any.
void setUnfusedEpilogues(mlir::ModuleOp module, const RunConfig &run);

/// Whether the module is of `run_mode: predict`: prefill and decode in place of a step.
bool generates(mlir::ModuleOp module);
/// Whether it has a backward pass and an optimizer: neither generation nor an evaluation has them.
bool trains(mlir::ModuleOp module);

/// The plan, as far as passes behind the partition need it. Its mesh is that of `dist.mesh`.
planner::Plan readPlan(mlir::ModuleOp module);

/// The model's layers in order.
std::vector<SegmentRun> readRuns(mlir::ModuleOp module);

OptimizerConfig readOptimizer(mlir::ModuleOp module);
/// Whether the optimizer keeps f32 masters of parameters that are stored in another type.
bool readMasters(mlir::ModuleOp module);

} // namespace espalier
