// Trains a partitioned model in the interpreter: every rank a thread, the phase functions of the compiler (before code
// generation) run by the planner's schedule. What a compiled plan must agree with, and what a plan must agree with the
// unsplit model in.
#pragma once

#include "compiler/driver.h"
#include "compiler/interpret/eval.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace espalier {

/// One sample of a batch, each vector of the sequence's length.
struct TrainingSample {
  std::vector<double> tokens, labels, lossWeights, positions;
};

struct TrainingInputs {
  std::function<TrainingSample(int64_t index)> sample; ///< called from several threads
  std::function<double(int64_t step)> learningRate;    ///< step from 0
  int64_t steps = 1;
};

/// One step: mean loss, norm of the mean gradient, for each global parameter name its mean gradient (unpadded,
/// row-major), and how often rank 0 has met others over a bucket: to "sum", "scatter" or "gather".
struct TrainingStep {
  double loss = 0, gradNorm = 0;
  std::map<std::string, std::vector<double>> gradients;
  std::map<std::string, int64_t> exchanges;
};

llvm::Expected<std::vector<TrainingStep>> trainRanks(const PartitionedModel &model, const RunConfig &run,
                                                     const planner::Plan &plan, const TrainingInputs &inputs);

} // namespace espalier
