// One rank's loop: steps, evaluations and checkpoints in the order that all ranks share.
#pragma once

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/train/batch_loader.h"
#include "runtime/train/divergence.h"
#include "runtime/train/gather.h"
#include "runtime/train/metrics.h"
#include "runtime/train/run.h"
#include "runtime/train/step_scalars.h"
#include "runtime/train/stop.h"

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
  RunResult result; ///< written by rank 0
  StopAgreement stop;
  Checkpoints *checkpoints = nullptr; ///< null: none
};

class Trainer final : public StepClient {
public:
  Trainer(RunContext &context, Executor &executor, ThreadPool &pool);

  /// Initialises or resumes, then trains to the end.
  void run();

  void loadInputs(uint32_t microBatch, std::byte *inputs) override;
  void beforeAgreement() override;
  void updateScalars(Scalars &scalars) override;

private:
  /// Sums over all ranks.
  struct Loss {
    double sum = 0, tokens = 0;
  };

  void trainStep();
  void evaluate();
  void saveIfDue();
  void endRun();
  Loss evaluateBatches(BatchLoader &from, int64_t consumed, int64_t batches);
  StepRecord record(const StepOutcome &outcome, double seconds) const;
  bool isStopped() const { return context.stop.endsWith(meeting); }
  bool isLeader() const { return executor.rankProgram().rank == 0; }

  RunContext &context;
  Executor &executor;
  ThreadPool &pool; ///< for work on the host
  const pb::Settings &settings;
  ScalarState state;
  BatchLoader trainingBatches;
  std::optional<BatchLoader> heldOutBatches;
  BatchLoader *evaluated = nullptr; ///< what an evaluation under way reads
  int64_t evaluationStart = 0, evaluationBatch = 0;
  int64_t firstStep = 0;
  DivergenceRule divergenceRule;
  std::string divergence; ///< the rule's verdict
  uint64_t meeting = 0;   ///< how often this rank has gone to meet all others
  bool isSaveDue = false;
};

} // namespace espalier::rt
