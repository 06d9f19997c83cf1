// The entries of a plan for the batch sizes of a ramp.
#pragma once

#include "compiler/import/run/run_config.h"
#include "planner/plan.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace espalier {

/// Returns the numbers of micro-batches of the smaller batches of a run's ramp under a plan, ascending, each once.
/// The plan has one entry for each, after the entries `train_step` and `evaluate`.
std::vector<int64_t> rampMicroBatches(const RunConfig &run, const planner::Plan &plan);

/// Returns the entry of a step of `globalBatch` samples.
uint32_t rampEntry(const RunConfig &run, const planner::Plan &plan, int64_t globalBatch);

/// Returns why the plan cannot run the ramp, or an empty string.
std::string whyNoRamp(const RunConfig &run, const planner::Plan &plan);

/// Returns the numbers of micro-batches that setRunAttributes() has stored in the module.
std::vector<int64_t> readRamp(mlir::ModuleOp module);

} // namespace espalier
