// What a run opens before its ranks start: all that can be refused without them.
#pragma once

#include "runtime/train/trainer.h"

#include <memory>
#include <optional>

namespace espalier::rt {

/// Where the ranks of this process stand among those of the run.
struct ProcessPlace {
  int hostRanks = 1;      ///< of all processes on this host
  std::string token = ""; ///< of the checkpoints' folder, where another process holds it; empty where this one does
  bool hasFirst = true;   ///< rank 0, which alone speaks and writes metrics
  /// The process with rank 0 has asked whether this host has the memory for all, and may have begun to take it.
  bool isMemoryChecked = false;
};

/// What the ranks of a process read.
struct RunData {
  std::shared_ptr<const Dataset> training, heldOut;
};

/// Throws MemoryError before anything of size is allocated, PlanError or DataError.
RunData openData(const Program &program, const RunOptions &options, const ProcessPlace &place);

class PreparedRun {
public:
  /// Throws as openData does, which is called where `data` is none.
  PreparedRun(const Program &program, const RunOptions &options, const ProcessPlace &place,
              const std::optional<RunData> &data = std::nullopt);

  /// Once all ranks have ended. Throws PlanError, RankFailure or std::runtime_error where not all is well.
  RunResult finish(const std::optional<RankFailure> &failure);

  /// Says how the run ended, unless its checkpoints could not be read.
  void close();

  const RunOptions options;
  const int threads, spins; ///< of each rank
  const int peakThreads;    ///< of this host that compute at the same time
  const RunData data;
  const std::unique_ptr<StartingWeights> start; ///< null: none
  std::unique_ptr<Checkpoints> checkpoints;
  RunContext context;
};

} // namespace espalier::rt
