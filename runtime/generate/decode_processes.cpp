#include "runtime/generate/decode_processes.h"

#include "runtime/crash_report.h"
#include "runtime/memory_check.h"
#include "runtime/processes/processes.h"
#include "runtime/run/failure_report.h"
#include "runtime/run/mpi_rank.h"
#include "runtime/run/run_processes.h"
#include "runtime/run/watched_run.h"

namespace espalier::rt {
namespace {

/// Runs one rank. Returns whether it finished; false if another rank failed.
bool decodeAs(const Program &program, const StartingWeights &weights, const RankPlace &place,
              const DecodingWork &work) {
  bool isDone = false;
  try {
    Decoder decoder(program, &weights, place);
    work(decoder, place.rank == 0);
    isDone = true;
  } catch (const RankStopped &) {
    // The rank that failed first has recorded its failure.
  }
  if (place.status)
    place.status->hasEnded.store(true, std::memory_order_release);
  return isDone;
}

} // namespace

void decodeInProcesses(const Program &program, const StartingWeights &weights, const RunOptions &options,
                       const DecodingWork &work) {
  int ranks = program.mesh().ranks();
  requireMemory(program, options.threads, freeMemory(), ranks);
  ShmWorld world(ranks, sharedBytesOf(program) + ranks * LogitsGather::bytes(program));
  std::vector<Process> processes = spawn(world, [&](int rank) {
    auto abort = [&](const Failure &failure) { world.abort(failure); };
    onCrash(abort);
    RankPlace place{.rank = rank,
                    .threads = options.threads,
                    .spins = spinsFor(ranks * options.threads),
                    .open = [&, rank] { return world.communicator(rank); },
                    .abort = abort,
                    .status = &world.status(rank)};
    return decodeAs(program, weights, place, work) ? 0 : 1;
  });
  std::optional<RankFailure> failure = watchRun(program, options, world, processes, {});
  if (!failure)
    return;
  writeFailureReport(program, options, *failure);
  throw *failure;
}

void decodeOverMpi(const Program &program, const StartingWeights &weights, const RunOptions &options,
                   const DecodingWork &work) {
  auto live = [&](MpiPlace &at) {
    RankPlace place{.rank = at.world.rank(),
                    .threads = options.threads,
                    .open = [&] { return std::move(at.communicator); },
                    .abort = at.abort,
                    .status = &at.status};
    bool isDone = decodeAs(program, weights, place, work);
    if (isDone)
      at.results.write({});
    return isDone;
  };
  try {
    launchMpiRank(program, options, Comparing::Launchers, live);
  } catch (const RankFailure &failure) { // only in the process that reports
    writeFailureReport(program, options, failure);
    throw;
  }
}

} // namespace espalier::rt
