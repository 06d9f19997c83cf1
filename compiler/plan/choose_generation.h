// Which plan a run of `run_mode: predict` gets.
#pragma once

#include "compiler/plan/fit_memory.h"

namespace espalier {

/// The pins as far as they are given. Of splits that are free the one on the fewest ranks whose arena fits the device,
/// tensor before pipeline: each step of decoding waits for all stages. A batch is one micro-batch.
ChosenPlan chooseGeneration(mlir::MLIRContext &context, const RunConfig &run, const std::string &target = "cpu");

} // namespace espalier
