// One rank of those that mpirun or srun started: this process forks it and watches it, so that a rank that was killed
// or stopped is told by somebody who lives.
#pragma once

#include "runtime/comm/mpi.h"
#include "runtime/executor.h"
#include "runtime/train/rank.h"
#include "runtime/train/run.h"
#include "runtime/train/told_result.h"

#include <functional>
#include <memory>

namespace espalier::rt {

/// What the process of a rank finds.
struct MpiPlace {
  MpiWorld &world;
  Agreement &agreement; ///< of all ranks
  StatusPage &page;     ///< that the launcher looks at
  std::unique_ptr<Communicator> communicator;
  std::function<void(const Failure &)> abort; ///< all ranks
  const ResultFile &results;                  ///< where a rank that has come to its end leaves what it has
  std::shared_ptr<void> &kept;                ///< goes once all ranks have come to their end
};

/// A rank's work; whether it came to its end.
using MpiWork = std::function<bool(MpiPlace &place)>;

/// Does the work in a process of its own, to whose end it returns what was left in the results. Throws as runPlan does
/// in the process that reports; ReportedElsewhere in the others.
RunResult launchMpiRank(const Program &program, const RunOptions &options, const MpiWork &work);

} // namespace espalier::rt
