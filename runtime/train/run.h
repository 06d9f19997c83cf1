// Trains by a plan: the loop that the command and the tests share.
#pragma once

#include "runtime/data/dataset.h"
#include "runtime/data/sampler.h"
#include "runtime/executor.h"
#include "runtime/launch/topology.h"
#include "runtime/program.h"
#include "runtime/train/open_data.h"

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

/// One optimizer step as metrics report it.
struct StepRecord {
  int64_t step = 0;              ///< from 1
  double loss = 0, gradNorm = 0; ///< NaN without labels
  double learningRate = 0, seconds = 0, tokensPerSecond = 0;
  double mfu = 0; ///< share of the peak FLOP/s of this machine; 0: not known, or the step was faster
  double lossScale = 1;
  double labels = 0;      ///< tokens that count in the loss
  bool isApplied = true;  ///< false where an overflow skipped the step, or there are no labels
  uint64_t peakBytes = 0; ///< of the fullest rank: arena and scratch
};

struct EvaluationRecord {
  int64_t step = 0; ///< steps trained before
  double loss = 0, tokens = 0;
};

/// What the ranks are to each other: threads of this process, processes of this host, or processes of any hosts whose
/// tensors go over MPI, or between devices.
enum class Comm { local, shm, mpi, hosts };

/// Whether a plan is for an evaluation: its run trains nothing.
inline bool isForEvaluation(const pb::Settings &settings) { return settings.run_mode() == "eval"; }

/// Micro-batches per replica of an evaluation while a run trains, where nobody says how many.
inline constexpr int64_t evaluationBatches = 8;

struct RunOptions {
  Comm comm = Comm::local;
  DataOptions data;                              ///< what to read
  SampleOrder order = SampleOrder::single;       ///< of the training samples
  std::shared_ptr<const Dataset> dataset;        ///< used instead of `data` when set
  std::shared_ptr<const Dataset> heldOut;        ///< the same for evaluation
  int64_t steps = 1;                             ///< in total: a resumed run continues up to here
  int threads = 0;                               ///< per rank; 0: cores / ranks of the host, at least 1
  bool sharesDevices = false;                    ///< ranks may share a device where there are fewer
  std::optional<launch::Topology> topology;      ///< which ranks this process has; none: all
  std::string token;                             ///< that the processes of several hosts know; empty for none
  std::filesystem::path metrics;                 ///< JSON lines; empty for none
  std::filesystem::path load;                    ///< weights to start from; empty: what the plan says
  std::filesystem::path checkpoint;              ///< folder; empty for none
  int64_t saveEvery = 0;                         ///< steps; 0: at the end only
  bool resume = false;                           ///< continue from the latest checkpoint
  bool acceptChanges = false;                    ///< though it was written by another training of the model
  int64_t keep = 0;                              ///< checkpoints that stay, the newest; 0: all
  int64_t evalEvery = 0;                         ///< steps; 0: never
  Split evalSplit = Split::valid;                ///< what evaluations read
  std::optional<int64_t> evalBatches;            ///< micro-batches per replica of one; unset: evaluationBatches, or all
  bool keepGradients = false;                    ///< fill RunResult::gradients
  bool keepParameters = false;                   ///< fill RunResult::parameters
  bool log = false;                              ///< a line per step on standard output
  std::filesystem::path status;                  ///< who runs where, once all have met; empty for none
  std::filesystem::path trace;                   ///< the last step trained, as it was run; empty for none
  std::filesystem::path failureReport;           ///< written where a rank fails; empty for none
  double failureSeconds = 5;                     ///< within which all processes have ended after a failure
  std::string resumeCommand;                     ///< for that report
  std::optional<Fault> fault;                    ///< a test's failure
  std::function<void(const Executor &)> inspect; ///< called by each rank's thread after each step
  std::function<void(const StepRecord &)> onStep; ///< called by the thread of rank 0 after each step
  std::function<int()> stopSignal;                ///< asked by each process: the signal that asks for an end, or 0

  /// Ranks of a plan for `ranks` that are on this host.
  int hostRanks(int ranks) const { return topology ? topology->hostRanks : ranks; }
};

struct RunResult {
  std::vector<StepRecord> steps;
  std::vector<EvaluationRecord> evaluations;
  std::vector<Tensors> gradients;  ///< per step, of the mean loss, before clipping
  std::vector<Tensors> parameters; ///< per step, after the update
  int stopSignal = 0;              ///< the signal after which the run ended, 0 for none
  std::string divergence;          ///< why it ended before its last step as a failed one; empty otherwise
};

/// Runs all ranks of a plan; over MPI the one that this process is. Throws MemoryError before anything of size is
/// allocated, PlanError, DataError, or RankFailure after all ranks have stopped.
RunResult runPlan(const Program &program, const RunOptions &options);

} // namespace espalier::rt
