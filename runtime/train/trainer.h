// One rank's loop: steps, evaluations and checkpoints in the order that all ranks share.
#pragma once

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/start.h"
#include "runtime/train/batch_loader.h"
#include "runtime/train/divergence.h"
#include "runtime/train/gather.h"
#include "runtime/train/metrics.h"
#include "runtime/train/run.h"
#include "runtime/train/step_scalars.h"
#include "runtime/train/stop.h"

#include <chrono>

namespace espalier::rt {

/// What the ranks of a process share. Between processes nothing is: what must be equal there comes out of an entry or
/// an Agreement.
struct RunContext {
  const Program &program;
  const RunOptions &options;
  const Dataset &training;
  const Dataset *heldOut = nullptr; ///< null: no evaluation
  double peakFlops = 0;             ///< of all ranks; 0: not known
  Metrics metrics;
  Gatherer gatherer;
  RunResult result;                       ///< steps by rank 0, its end by the first rank of the process
  Checkpoints *checkpoints = nullptr;     ///< null: none
  const StartingWeights *start = nullptr; ///< null: initial values, or what a checkpoint of the run has
  std::string loadFault; ///< why no weights could be loaded: the user's error; written by the process's first rank
  bool isPeakExceeded = false; ///< by a step: the machine was busy while its peak was measured
};

class Trainer {
public:
  Trainer(RunContext &context, Executor &executor, Agreement &agreement, ThreadPool &pool);

  /// Initialises, loads or resumes, then trains to the end; or evaluates, where the plan is for that.
  void run();

private:
  /// A list of the plan, by its name, and the number of micro-batches that it takes.
  struct EntryPlace {
    uint32_t number, microBatches;
  };
  /// Sums over all ranks.
  struct Loss {
    double sum = 0, tokens = 0;
  };

  EntryPlace entryNamed(const char *name) const;
  uint32_t exchangeNamed(const char *name) const;
  /// Runs an entry on micro-batches of the samples behind `consumed`, from micro-batch `first` on.
  Scalars runEntry(const EntryPlace &entry, Scalars scalars, BatchLoader &from, int64_t consumed, int64_t first = 0);
  /// The signal that has come to this process, as far as this rank is the one that looks.
  int signalHere() const;

  /// Fills the rank's parameters. False, on all ranks, where they cannot be loaded.
  bool begin();
  void train();
  void trainStep();
  void evaluate(int64_t step, int64_t batches);
  int64_t wholeBatches() const;
  void saveIfDue();
  void endRun();
  Loss evaluateBatches(BatchLoader &from, int64_t consumed, int64_t batches);
  StepRecord record(const StepOutcome &outcome, double seconds);
  bool isLeader() const { return executor.rankProgram().rank == 0; }

  RunContext &context;
  Executor &executor;
  Agreement &agreement;
  ThreadPool &pool; ///< for work on the host
  const pb::Settings &settings;
  ScalarState state;
  BatchLoader trainingBatches;
  std::optional<BatchLoader> heldOutBatches;
  const EntryPlace evaluateEntry, trainEntry; ///< where the plan is for evaluation they are the same
  const uint32_t scalarsExchange, resultsExchange;
  TraceRecorder recorder; ///< of the last step, where one is asked for
  int64_t firstStep = 0;
  DivergenceRule divergenceRule;
  std::string divergence; ///< the rule's verdict
  bool isStopped = false; ///< by a signal: on all ranks after the same entry
  bool isSaveDue = false;
};

} // namespace espalier::rt
