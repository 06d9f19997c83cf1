// The loop of one rank: steps, evaluations and checkpoints, in the same order on all ranks.
#pragma once

#include "runtime/checkpoint/background_save.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/start.h"
#include "runtime/train/batch_loader.h"
#include "runtime/train/batch_ramp.h"
#include "runtime/train/divergence.h"
#include "runtime/train/gather.h"
#include "runtime/train/metrics.h"
#include "runtime/train/run_options.h"
#include "runtime/train/statement.h"
#include "runtime/train/step_scalars.h"
#include "runtime/train/stop.h"

#include <chrono>

namespace espalier::rt {

/// The objects that the ranks of a process share. Different processes share nothing, so values that must be equal come
/// from an entry or an Agreement.
struct RunContext {
  const Program &program;
  const RunOptions &options;
  const Dataset &training;
  const Dataset *heldOut = nullptr; ///< null: no evaluation
  double peakFlops = 0;             ///< of all ranks; 0: unknown
  Metrics metrics;
  Gatherer gatherer;
  RunResult result;                       ///< rank 0 adds the steps; the first rank of the process sets how it ended
  Checkpoints *checkpoints = nullptr;     ///< null: no checkpoints
  const StartingWeights *start = nullptr; ///< null: initial values, or the run's own checkpoint
  std::string loadFault;      ///< why the run cannot begin (a user error); the first rank of the process writes it
  SaveChoice saveChoice = {}; ///< of this process
  double reachedFlops = 0;    ///< of the fastest step
  Statement statement = {};   ///< of this process; empty if it has all ranks
};

/// Trains or evaluates on one rank.
class Trainer {
public:
  /// Prepares the loop of one rank. `context` and the other arguments must outlive the trainer.
  Trainer(RunContext &context, Executor &executor, Agreement &agreement, ThreadPool &pool);

  /// Initializes, loads or resumes, then trains to the end. If the plan only evaluates, evaluates instead.
  void run();

private:
  /// An entry of the plan, with its index and its number of micro-batches.
  struct EntryPlace {
    uint32_t number, microBatches;
  };
  /// Sums over all ranks.
  struct Loss {
    double sum = 0, tokens = 0;
  };

  EntryPlace entryNamed(const char *name) const;
  uint32_t exchangeNamed(const char *name) const;
  /// Runs an entry on micro-batches of the samples after `consumed`, starting with micro-batch `first`.
  Scalars runEntry(const EntryPlace &entry, Scalars scalars, BatchLoader &from, int64_t consumed, int64_t first = 0);
  /// Returns the signal that this process has received, or 0 on ranks that do not poll for signals.
  int signalHere() const;

  /// Initializes or loads the rank's parameters. Returns false on all ranks if any rank cannot load them.
  bool begin();
  void train();
  void trainStep();
  void evaluate(int64_t step, int64_t batches);
  int64_t wholeBatches() const;
  /// Agrees with the other ranks on how checkpoints are written, and allocates what that needs.
  void prepareSaves();
  void saveIfDue();
  /// Goes on with the save in flight if no rank writes any more.
  void advanceSave();
  /// Waits for the save in flight, or cancels it if its weights have not given a finite loss.
  void finishSave();
  void report(std::optional<SaveRecord> record);
  /// Loads the last checkpoint of a run that has diverged, and skips the samples read since. Returns false on all ranks
  /// if the run must end; `divergence` then says why.
  bool rollBack();
  void beginComparison();
  /// Compares the ranks' compute times if a window ends. All ranks call it after each step.
  void compareIfDue();
  void endRun();
  Loss evaluateBatches(BatchLoader &from, int64_t consumed, int64_t batches);
  StepRecord record(const StepOutcome &outcome, double seconds);
  /// Adds a step to the result.
  void keep(StepRecord record);
  /// Publishes the median duration of the last steps.
  void showStepSeconds(double seconds);
  /// Finds the counters of layers, and agrees with the other ranks on when they are read.
  void beginCounters();
  /// Adds the loads of experts since the last call, and the attention scores of the step, to the record if they are
  /// due. All ranks call it after each step.
  void countIfDue(StepRecord &record);
  bool isLeader() const { return executor.rankProgram().rank == 0; }

  RunContext &context;
  Executor &executor;
  Agreement &agreement;
  ThreadPool &pool; ///< for host work
  const pb::Settings &settings;
  ScalarState state;
  BatchLoader trainingBatches;
  std::optional<BatchLoader> heldOutBatches;
  const EntryPlace evaluateEntry, trainEntry; ///< equal if the plan only evaluates
  StepBatch batch;                            ///< of the last step
  const uint32_t scalarsExchange, resultsExchange;
  TraceRecorder recorder;                       ///< of the last step, if a trace was requested
  int64_t windowSteps = 0;                      ///< of comparisons of the ranks' compute times; 0: none
  std::optional<SlowRanks> slowRanks;           ///< set if there are comparisons
  std::vector<std::string> hosts;               ///< of the ranks, if there are comparisons
  std::optional<ExpertCounters> expertCounters; ///< set if the plan has counters of experts
  std::optional<ScoreCounters> scoreCounters;   ///< set if the plan has counters of attention scores
  int64_t countSteps = 0, countedSteps = 0;     ///< steps between readings of the counters, and since the last one
  int64_t firstStep = 0;
  std::vector<double> stepSeconds; ///< of the last steps
  DivergenceRule divergenceRule;
  std::string divergence; ///< the result of the rule
  bool isStopped = false; ///< by a signal, on all ranks after the same entry
  int64_t rollbacks = 0;
  bool isSaveDue = false;
  std::optional<BackgroundSave> saving; ///< null: checkpoints are written at once
  bool isSaveProven = false;            ///< the weights of the save in flight have given a finite loss
  bool isAnyWriting = false;            ///< some rank's thread was writing when the last entry began
};

} // namespace espalier::rt
