// Runs one rank of an mpirun or srun job. This process forks the rank and supervises it, so that a live process reports
// a rank that was killed or stopped.
#pragma once

#include "runtime/comm/mpi.h"
#include "runtime/executor.h"
#include "runtime/run/rank.h"
#include "runtime/run/rank_result.h"
#include "runtime/run/run.h"

#include <functional>
#include <memory>

namespace espalier::rt {

/// The environment of a rank's process.
struct MpiPlace {
  MpiWorld &world;
  Agreement &agreement; ///< over all ranks
  RankStatus &status;   ///< the status that the launcher polls
  std::unique_ptr<Communicator> communicator;
  std::function<void(const Failure &)> abort; ///< stops all ranks
  const ResultFile &results;                  ///< where a rank that completes writes its result
  std::shared_ptr<void> &kept;                ///< destroyed after all ranks have completed
};

/// The work of a rank. Returns whether the rank completed.
using MpiWork = std::function<bool(MpiPlace &place)>;

/// What compares plan and build of the processes: their launchers, or, with more besides, their ranks.
enum class Comparing { Launchers, Ranks };

/// Runs the work in a child process and returns the result that the child has written. Throws as runPlan does in the
/// process that reports, and ReportedElsewhere in the others.
RunResult launchMpiRank(const Program &program, const RunOptions &options, Comparing comparing, const MpiWork &work);

} // namespace espalier::rt
