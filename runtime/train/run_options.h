// The options and the result of a run.
#pragma once

#include "runtime/checkpoint/finite.h"
#include "runtime/checkpoint/save_record.h"
#include "runtime/dataset/dataset.h"
#include "runtime/dataset/packing.h"
#include "runtime/dataset/sampler.h"
#include "runtime/executor.h"
#include "runtime/launch/topology.h"
#include "runtime/program.h"
#include "runtime/train/attention_scores.h"
#include "runtime/train/expert_loads.h"
#include "runtime/train/open_data.h"
#include "runtime/train/slow_ranks.h"

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace espalier::rt {

/// A parameter's unsharded values or gradients, by name, row-major in its unpadded shape.
using Tensors = std::map<std::string, std::vector<float>>;

/// One optimizer step in the metrics.
struct StepRecord {
  int64_t step = 0;              ///< from 1
  double loss = 0, gradNorm = 0; ///< NaN without labels
  double learningRate = 0, seconds = 0, tokensPerSecond = 0;
  double mfu = 0; ///< fraction of this machine's peak FLOP/s; 0: unknown, or above 1
  double lossScale = 1;
  double labels = 0;      ///< tokens with loss weight
  bool isApplied = true;  ///< false if an overflow or a spike skipped the step, or if the batch has no labels
  uint64_t peakBytes = 0; ///< arena and scratch of the rank with the largest sum
  bool isSpike = false;   ///< skipped because its norm was above `normLimit`
  double normLimit = 0;   ///< 0: none
  int64_t batch = 0;      ///< samples of the step in a run with a ramp of the batch size, else 0
  ExpertLoads experts;    ///< empty in most steps
  /// The largest attention score of each layer in a run with QK-clip; given as often as `experts`.
  std::vector<LayerScore> attentionScores;
  std::optional<PackedStep> packing; ///< in a run with `pack: balanced`
};

/// Ranks that are slow, in the metrics; see SlowRanks.
struct SlowRecord {
  int64_t step = 0; ///< steps trained before
  int64_t windowSteps = 0;
  std::vector<SlowRank> ranks;    ///< all ranks that are slow now, the slowest first; empty after all have recovered
  std::vector<std::string> hosts; ///< of these ranks
};

/// One evaluation in the metrics.
struct EvaluationRecord {
  int64_t step = 0; ///< steps trained before
  double loss = 0, tokens = 0;
};

/// A return to the last checkpoint after the run has diverged.
struct RollbackRecord {
  int64_t afterStep = 0;        ///< the last step before the return
  int64_t toStep = 0;           ///< of the checkpoint
  int64_t skippedSamples = 0;   ///< read since the checkpoint; the run does not read them again
  int64_t number = 0, most = 0; ///< of this rollback in the run, from 1, and the limit
  std::string reason;           ///< why the run has diverged
};

/// A restart of an elastic run, after a failure or because lost ranks have returned.
struct RestartRecord {
  enum Kind {
    shrink, ///< ranks were lost; a plan with fewer ranks goes on
    same,   ///< after a failure, the same number of ranks goes on
    grow,   ///< lost ranks have returned
  };
  Kind kind = shrink;
  int ranksBefore = 0, ranks = 0;
  std::string plan;             ///< file of the plan that goes on
  std::string reason;           ///< the failure; empty if the run grows
  int64_t number = 0, most = 0; ///< of this restart after a failure, from 1, and the limit; of a growth, those before
  double endedAt = 0;           ///< when the ranks before had ended, in seconds since 1970
};

/// Returns the name of a kind in metrics and reports.
inline const char *nameOf(RestartRecord::Kind kind) {
  return kind == RestartRecord::shrink ? "shrink" : kind == RestartRecord::same ? "restart" : "grow";
}

/// The reaction to divergence: the run ends, or loads its last checkpoint and skips the data since that checkpoint.
enum class OnDivergence { stop, rollback };

/// The communication between ranks: as threads of this process, as processes of this host, or as processes of several
/// hosts over MPI or between devices.
enum class Comm { local, shm, mpi, hosts };

/// Returns whether a plan only evaluates.
inline bool isForEvaluation(const pb::Settings &settings) { return settings.run_mode() == "eval"; }

/// Micro-batches per replica of an evaluation during training, if the options give no number.
inline constexpr int64_t evaluationBatches = 8;

/// The options of a run.
struct RunOptions {
  Comm comm = Comm::local;
  DataOptions data;                               ///< what to read
  SampleOrder order = SampleOrder::single;        ///< order of the training samples
  std::shared_ptr<const Dataset> dataset;         ///< used instead of `data` when set
  std::shared_ptr<const Dataset> heldOut;         ///< the same for evaluation
  std::shared_ptr<const Dataset> opened;          ///< the training samples of `data`, if they are open already
  int64_t steps = 1;                              ///< in total, including the steps before a resume
  int threads = 0;                                ///< per rank; 0: cores / ranks of the host, at least 1
  bool sharesDevices = false;                     ///< ranks may share a device if there are fewer devices
  std::optional<launch::Topology> topology;       ///< the ranks of this process; unset: all
  std::string token;                              ///< the shared secret of the processes of several hosts; empty: none
  std::filesystem::path metrics;                  ///< JSON lines; empty: none
  std::filesystem::path tensorboard;              ///< folder for an event file of TensorBoard; empty: none
  std::string prometheus;                         ///< HOST:PORT or PORT of a PrometheusEndpoint; empty: none
  std::string prometheusTokenFile;                ///< whose token scrapes must send; empty: none
  std::filesystem::path load;                     ///< weights to start from; empty: those of the plan
  std::filesystem::path checkpoint;               ///< folder; empty: none
  std::filesystem::path tokenizer;                ///< kept in checkpoints: its file or folder; empty: that of the data
  NonFinite nonFinite = NonFinite::Refused;       ///< in weights that are loaded
  int64_t saveEvery = 0;                          ///< steps; 0: at the end only
  std::optional<SaveMode> save;                   ///< unset: background if memory holds the copy
  bool resume = false;                            ///< continue from the latest checkpoint
  bool acceptChanges = false;                     ///< resume even if a different training of the model wrote it
  OnDivergence onDivergence = OnDivergence::stop; ///< rollback needs `checkpoint`
  int64_t maxRollbacks = 3;                       ///< in the run
  int64_t maxUnsaved = 3;                         ///< saves in a row whose failure ends the run
  int64_t keep = 0;                               ///< number of newest checkpoints to keep; 0: all
  std::optional<int64_t> compareEvery;            ///< steps of a window of SlowRanks, 0: never; unset: see Trainer
  int64_t evalEvery = 0;                          ///< steps; 0: never
  Split evalSplit = Split::valid;                 ///< the split that evaluations read
  std::optional<int64_t> evalBatches;             ///< micro-batches per replica; unset: evaluationBatches, or all
  bool keepGradients = false;                     ///< fill RunResult::gradients
  bool keepParameters = false;                    ///< fill RunResult::parameters
  bool keepSteps = true;                          ///< keep all steps in RunResult::steps, not only the last ones
  bool log = false;                               ///< lines on standard output
  std::optional<int64_t> logEvery;                ///< steps between log lines; unset: 1, but none on a terminal
  std::filesystem::path status;                   ///< JSON file with the host of each rank; empty: none
  std::filesystem::path trace;                    ///< trace file of the last trained step; empty: none
  std::filesystem::path failureReport;            ///< written if a rank fails; empty: none
  double failureSeconds = 5;                      ///< limit for the end of all processes after a failure
  std::optional<double> stallSeconds;             ///< for which nobody may move, 0: for ever; unset: see StallPatience
  std::string resumeCommand;                      ///< for the failure report
  std::vector<RestartRecord> restarts;            ///< of this elastic run until now
  std::optional<Fault> fault;                     ///< a failure to inject, for tests
  std::function<void(const Executor &)> inspect;  ///< called by each rank's thread after each step
  std::function<void(const StepRecord &)> onStep; ///< called by the thread of rank 0 after each step
  /// Called by the thread of rank 0 with the folder of each checkpoint that is complete. Training waits.
  std::function<void(const std::filesystem::path &)> onSave;
  std::function<int()> stopSignal; ///< returns the signal that asked the process to stop, or 0

  /// Returns the number of ranks on this host, for a plan with `ranks` ranks.
  int hostRanks(int ranks) const { return topology ? topology->hostRanks : ranks; }
};

/// Returns whether checkpoints are due before the last step.
inline bool savesBeforeTheEnd(const RunOptions &options) {
  return !options.checkpoint.empty() && options.saveEvery > 0 && options.saveEvery < options.steps;
}

/// The result of a run.
struct RunResult {
  /// The steps that RunOptions::keepSteps keeps. Without it, at least the last 1,000, so that memory does not grow.
  std::vector<StepRecord> steps;
  int64_t stepCount = 0;     ///< of all steps
  double stepSeconds = 0;    ///< of all steps together
  bool isAnyApplied = false; ///< some step has changed the weights
  std::vector<SaveRecord> saves;
  std::vector<RollbackRecord> rollbacks;
  std::vector<EvaluationRecord> evaluations;
  std::vector<Tensors> gradients;  ///< per step, of the mean loss, before clipping
  std::vector<Tensors> parameters; ///< per step, after the update
  int stopSignal = 0;              ///< the signal that ended the run; 0: none
  std::string divergence;          ///< why the run ended early as diverged; else empty
};

} // namespace espalier::rt
