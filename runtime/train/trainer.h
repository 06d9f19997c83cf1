// One rank's loop: steps, evaluations and checkpoints in the order that all ranks share.
#pragma once

#include "runtime/train/batch_loader.h"
#include "runtime/train/gather.h"
#include "runtime/train/metrics.h"
#include "runtime/train/run.h"
#include "runtime/train/step_scalars.h"

#include <chrono>

namespace espalier::rt {

/// What the ranks of a process share.
struct RunContext {
  const Program &program;
  const RunOptions &options;
  const Dataset &training;
  const Dataset *heldOut = nullptr; ///< null: no evaluation
  double peakFlops = 0;
  Metrics metrics;
  Gatherer gatherer;
  RunResult result; ///< records are written by rank 0
};

class Trainer final : public StepClient {
public:
  Trainer(RunContext &context, Executor &executor, ThreadPool &pool);

  /// Initialises or resumes, then trains to the end.
  void run();

  void loadInputs(uint32_t microBatch, std::byte *inputs) override;
  void updateScalars(Scalars &scalars) override;

private:
  void trainStep();
  void evaluate();
  StepRecord record(const StepOutcome &outcome, double seconds) const;

  RunContext &context;
  Executor &executor;
  ThreadPool &pool; ///< for work on the host
  const pb::Settings &settings;
  ScalarState state;
  BatchLoader trainingBatches;
  std::optional<BatchLoader> heldOutBatches;
  bool isEvaluating = false;
  int64_t evaluationBatch = 0;
  int64_t firstStep = 0;
};

} // namespace espalier::rt
