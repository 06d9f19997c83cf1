// Trains a partitioned model in the interpreter. Every rank is a thread that runs the compiler's phase functions
// (before code generation) in the planner's schedule. This is the reference for compiled plans; it must itself agree
// with the unsplit model.
#pragma once

#include "compiler/driver.h"
#include "compiler/interpret/eval.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace espalier {

/// One sample of a batch. Each vector has the sequence length.
struct TrainingSample {
  std::vector<double> tokens, labels, lossWeights, positions, visibleFrom;
};

/// The inputs of a training run.
struct TrainingInputs {
  std::function<TrainingSample(int64_t index)> sample; ///< called from several threads
  std::function<double(int64_t step)> learningRate;    ///< `step` counts from 0
  int64_t steps = 1;
};

/// One step: mean loss, norm of the mean gradient, whether the update was applied, the mean gradient of each global
/// parameter (unpadded, row-major), the number of rank 0's bucket collectives by kind: "sum", "scatter", "gather", and
/// the counters of layers, summed over ranks: "block.0.chosen0".
struct TrainingStep {
  double loss = 0, gradNorm = 0;
  bool isApplied = true;
  std::map<std::string, std::vector<double>> gradients;
  std::map<std::string, int64_t> exchanges;
  std::map<std::string, std::vector<double>> counters;
};

/// Trains for `inputs.steps` steps. Returns one entry per step, or the error of the first rank that failed.
llvm::Expected<std::vector<TrainingStep>> trainRanks(mlir::ModuleOp module, const RunConfig &run,
                                                     const planner::Plan &plan, const TrainingInputs &inputs);

} // namespace espalier
