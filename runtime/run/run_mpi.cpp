// Every rank opens its own inputs. Rank 0 does so first, because it locks the checkpoint folder. A start-up error of
// any rank stops all ranks, and one rank reports it.
#include "runtime/run/mpi_rank.h"
#include "runtime/run/prepare_rank.h"
#include "runtime/run/run_processes.h"
#include "runtime/run/watched_run.h"
#include "runtime/status.h"

namespace espalier::rt {

RunResult runOverMpi(const Program &program, const RunOptions &options) {
  if (options.keepGradients || options.keepParameters)
    throw PlanError("--dump-gradients and --dump-parameters gather in one process; run without mpirun");
  return launchMpiRank(program, options, Comparing::Ranks, [&](MpiPlace &place) {
    int rank = place.world.rank();
    auto kept = std::make_shared<std::optional<PreparedRun>>();
    place.kept = kept;
    std::optional<PreparedRun> &prepared = *kept;
    prepareRank(prepared, program, options, place.agreement, rank);
    bool isDone = runRank(prepared->context, {rank,
                                              /*isFirstHere=*/true,
                                              prepared->threads,
                                              prepared->spins,
                                              {rank},
                                              [&] { return std::move(place.communicator); },
                                              place.abort,
                                              [] {},
                                              &place.status});
    if (isDone)
      leaveResult(*prepared, rank, place.results);
    return isDone;
  });
}

} // namespace espalier::rt
