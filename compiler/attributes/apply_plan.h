// Writes a plan as attributes of the model's module, which the partition and recompute passes read.
#pragma once

#include "compiler/import/model/build_model.h"
#include "compiler/import/run/run_config.h"
#include "planner/plan.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Returns the model sizes that depend on the plan: the micro-batch over all replicas, and the vocabulary's padding.
/// The vocabulary is padded to a multiple of 128 * tp if tp shards it (as in Megatron), else to a multiple of 128.
ModelSizes sizesUnder(const planner::Plan &plan);

/// Sets dist.mesh, dist.dims, dist.sequence_parallel, dist.zigzag, dist.keep_collectives and dist.slice_inputs on the
/// module. Sets model.recompute on the segments, which lists the policies that their layers use.
void applyPlan(mlir::ModuleOp module, const planner::Plan &plan, const ModelDescription &model);

/// Makes the weight gradients of layers a phase of their own.
void splitBackward(mlir::ModuleOp module, const ModelDescription &model);

} // namespace espalier
