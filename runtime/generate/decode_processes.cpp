#include "runtime/generate/decode_processes.h"

#include "runtime/comm/mpi.h"
#include "runtime/crash_report.h"
#include "runtime/describe_place.h"
#include "runtime/launch/processes.h"
#include "runtime/memory_check.h"
#include "runtime/train/failure_report.h"
#include "runtime/train/run_processes.h"

#include <fmt/format.h>

namespace espalier::rt {
namespace {

/// Whether the rank came to its end; else another one failed.
bool decodeAs(const Program &program, const StartingWeights &weights, const RankPlace &place,
              const DecodingWork &work) {
  bool isDone = false;
  try {
    Decoder decoder(program, &weights, place);
    work(decoder, place.rank == 0);
    isDone = true;
  } catch (const RankStopped &) {
    // The first failure is kept by the rank that had it.
  }
  if (place.page)
    place.page->hasEnded.store(true, std::memory_order_release);
  return isDone;
}

} // namespace

void decodeInProcesses(const Program &program, const StartingWeights &weights, int threads, const DecodingWork &work) {
  int ranks = program.mesh().ranks();
  requireMemory(program, threads, freeMemory(), ranks);
  ShmWorld world(ranks, sharedBytesOf(program) + ranks * LogitsGather::bytes(program));
  std::vector<Process> processes = spawn(world, [&](int rank) {
    auto abort = [&](const Failure &failure) { world.abort(failure); };
    onCrash(abort);
    RankPlace place{.rank = rank,
                    .threads = threads,
                    .spins = spinsFor(ranks * threads),
                    .open = [&, rank] { return world.communicator(rank); },
                    .abort = abort,
                    .page = &world.page(rank)};
    return decodeAs(program, weights, place, work) ? 0 : 1;
  });
  Supervision how;
  how.describe = [&](int rank, Failure &failure) {
    describePlace(program.plan(), program.mesh().stage(rank), world.page(rank), failure);
  };
  if (std::optional<Failure> failure = supervise(processes, world, how))
    throw RankFailure(*failure, waitingRanks(program, world, /*first=*/0, failure->rank));
}

void decodeOverMpi(const Program &program, const StartingWeights &weights, int threads, const DecodingWork &work) {
  MpiWorld world;
  if (int ranks = program.mesh().ranks(); world.ranks() != ranks)
    throw PlanError(fmt::format("MPI has {} processes, the plan {} ranks; start as many", world.ranks(), ranks));
  RankPlace place{.rank = world.rank(),
                  .threads = threads,
                  .open = [&] { return world.communicator(); },
                  .abort = [&](const Failure &failure) { world.abort(failure); }};
  if (decodeAs(program, weights, place, work))
    return;
  std::optional<Failure> failure = world.failure();
  if (failure && failure->rank == world.rank())
    throw RankFailure(*failure);
  throw ReportedElsewhere(1);
}

} // namespace espalier::rt
