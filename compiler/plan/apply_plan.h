// A plan as attributes of the model's module, which the partition and recompute passes read.
#pragma once

#include "compiler/import/build_model.h"
#include "compiler/import/run_config.h"
#include "planner/plan.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Sizes of the model under a plan: the micro-batch over all replicas, and the vocabulary's padding: to 128 * tp where
/// tp splits it (as Megatron does), else none.
ModelSizes sizesUnder(const planner::Plan &plan);

/// Sets dist.mesh, dist.dims, dist.sequence_parallel, dist.keep_collectives, dist.slice_inputs on the module and
/// model.recompute on the segments: the policies that their layers use.
void applyPlan(mlir::ModuleOp module, const planner::Plan &plan, const ModelDescription &model);

} // namespace espalier
