// Chooses the plan of a run with `run_mode: predict`.
#pragma once

#include "compiler/choose/fit_memory.h"

namespace espalier {

/// Returns the plan that the run pins. If the run leaves the plan to the planner, returns the split with the fewest
/// ranks that respects the pins and whose arena fits the device. Tensor parallelism is preferred over pipeline
/// parallelism, because each decoding step passes through all stages. A batch is one micro-batch.
ChosenPlan chooseGeneration(mlir::MLIRContext &context, const RunConfig &run, const std::string &target = "cpu");

} // namespace espalier
