// The inputs and outputs that a run opens before its ranks start, so that user errors appear early.
#pragma once

#include "runtime/train/trainer.h"

#include <memory>
#include <optional>

namespace espalier::rt {

/// The position of this process's ranks among the ranks of the run.
struct ProcessPlace {
  int hostRanks = 1; ///< of all processes on this host
  /// Identifies the checkpoint folder that another process has locked; empty if this process locks the folder.
  std::string token = "";
  bool hasFirst = true; ///< has rank 0, which alone logs and writes metrics
  /// The process with rank 0 has checked that this host has enough memory for all ranks, and may have begun to
  /// allocate.
  bool isMemoryChecked = false;
};

/// Opens the training samples of a plan that trains: those of `options.data` for as many steps as the plan or the
/// options name. Throws PlanError or DataError.
std::shared_ptr<const Dataset> openTrainingSamples(const pb::Plan &plan, const RunOptions &options);

/// The datasets that the ranks of a process read, and how the ranks write checkpoints.
struct RunData {
  std::shared_ptr<const Dataset> training, heldOut;
  SaveChoice saves = {};
};

/// Opens the datasets of the run, and chooses how checkpoints are written. Throws MemoryError before any large
/// allocation, PlanError or DataError. A learning rate that is 0 at every step is a PlanError.
RunData openData(const Program &program, const RunOptions &options, const ProcessPlace &place);

/// The opened inputs and outputs of a run.
class PreparedRun {
public:
  /// Opens the inputs and outputs. Calls openData if `data` is empty. Throws as openData does.
  PreparedRun(const Program &program, const RunOptions &options, const ProcessPlace &place,
              const std::optional<RunData> &data = std::nullopt);

  /// Returns the result after all ranks have ended. Throws PlanError, RankFailure or std::runtime_error if the run
  /// failed.
  RunResult finish(const std::optional<RankFailure> &failure);

  /// Prints how the run ended, unless its checkpoints could not be read.
  void close();

  const RunOptions options;
  const int threads, spins; ///< per rank
  const int peakThreads;    ///< threads of this host that compute at the same time
  const double hosts;       ///< as many as this one has a share of the ranks
  const RunData data;
  const std::string dataText;                   ///< identifies the training data; empty if nothing needs it
  const std::unique_ptr<StartingWeights> start; ///< null: the run starts from initial values or resumes
  std::unique_ptr<Checkpoints> checkpoints;
  RunContext context;
};

} // namespace espalier::rt
