// The process that starts the others opens what the run needs and then only watches: the ranks' processes find all of
// it in their memory.
#include "runtime/train/run_processes.h"

#include "runtime/crash_report.h"
#include "runtime/train/prepared_run.h"
#include "runtime/train/rank.h"
#include "runtime/train/stop.h"
#include "runtime/train/watched_run.h"

#include <fmt/format.h>

namespace espalier::rt {
namespace {

DevicePlace deviceOf(const RunOptions &options, int rank) { return {rank, options.sharesDevices}; }

/// What the ranks find here, before there are any.
void requireDevices(const Program &program, const RunOptions &options) {
  std::vector<DeviceDemand> demands;
  for (int rank = 0; rank < program.mesh().ranks(); ++rank)
    demands.push_back({rank, deviceOf(options, rank)});
  std::string devices = program.backend().requireDevices(demands);
  if (options.log)
    fmt::print("{}", devices);
}

/// What processes cannot bring home.
void requireRecordsOnly(const RunOptions &options) {
  if (options.keepGradients || options.keepParameters)
    throw PlanError("--dump-gradients and --dump-parameters gather in one process; leave out --processes, or give "
                    "--comm local");
}

/// Bytes that all ranks together allocate of what they share: their arenas, unless these lie on devices.
size_t sharedBytes(const Program &program) {
  constexpr size_t besides = size_t{1} << 16; // a page for each piece, and what the meeting of all ranks takes
  auto ranks = static_cast<size_t>(program.mesh().ranks());
  size_t bytes = Agreement::sharedBytes(ranks) + ranks * besides;
  for (const pb::Stage &stage : program.plan().stages())
    bytes += program.plan().target() != "cpu" ? 0 : stage.arena_bytes(pb::DEVICE) * (ranks / program.mesh().count(PP));
  return bytes;
}

int runProcess(PreparedRun &run, ShmWorld &world, int rank, const ResultFile &results) {
  auto abort = [&](const Failure &failure) { world.abort(failure); };
  onCrash(abort);
  bool isDone = runRank(run.context, {rank, /*isFirstHere=*/true, run.threads, run.spins, deviceOf(run.options, rank),
                                      [&] { return world.communicator(rank); }, abort, [] {}, &world.page(rank)});
  if (rank == 0 && isDone) {
    run.close();
    results.write(
        {run.context.result, run.checkpoints ? run.checkpoints->loadFault() : "", run.context.metrics.fault(), {}});
  }
  return isDone ? 0 : 1;
}

} // namespace

RunResult runInProcesses(const Program &program, const RunOptions &options) {
  requireRecordsOnly(options);
  requireDevices(program, options);
  int ranks = program.mesh().ranks();
  PreparedRun run(program, options, {.hostRanks = ranks});
  ResultFile results;
  shareStopSignal();
  ShmWorld world(ranks, sharedBytes(program));
  std::vector<Process> processes = spawn(world, [&](int rank) { return runProcess(run, world, rank, results); });
  if (std::optional<RankFailure> failure = watchRun(program, options, world, processes, /*others=*/nullptr))
    throw *failure;
  return resultOf(results);
}

} // namespace espalier::rt
