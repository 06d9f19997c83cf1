// Starts the ranks of a plan and stops them together. This file runs ranks as threads.
#include "runtime/run/run.h"

#include "messages/error_line.h"
#include "runtime/comm/local.h"
#include "runtime/crash_report.h"
#include "runtime/describe_place.h"
#include "runtime/run/failure_report.h"
#include "runtime/run/prepared_run.h"
#include "runtime/run/progress_watch.h"
#include "runtime/run/rank.h"
#include "runtime/run/run_processes.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <latch>
#include <thread>
#include <unistd.h>

namespace espalier::rt {
namespace {

/// Runs all ranks to their end. If a rank cannot be started, stops the ranks that have started. The ranks' memory lives
/// until all ranks have ended, because peers may access it until they see the stop.
void runThreads(PreparedRun &run, LocalWorld &world) {
  int ranks = world.ranks();
  std::latch ended(ranks);
  std::vector<std::jthread> others;
  auto abort = [&](const Failure &failure) { world.abort(failure); };
  auto placeOf = [&](int rank) {
    return RankPlace{rank,
                     rank == 0,
                     run.threads,
                     run.spins,
                     {rank, run.options.sharesDevices},
                     [&, rank] { return world.communicator(rank); },
                     abort,
                     [&] { ended.arrive_and_wait(); },
                     &world.status(rank)};
  };
  int started = 1;
  try {
    others.reserve(ranks - 1);
    for (; started < ranks; ++started)
      others.push_back(startThread<std::jthread>([&, place = placeOf(started)] { runRank(run.context, place); }));
  } catch (const std::exception &error) {
    abortFor(abort, started, nullptr, error);
    ended.count_down(ranks - started + 1); // the ranks that were not started, and rank 0
    return;
  }
  runRank(run.context, placeOf(0));
}

/// The time within which the other ranks of a process must stop after a crash or a stall.
constexpr std::chrono::milliseconds crashPatience{1000};

/// Reports a crash, from the signal handler, or a stall, after the other ranks have stopped, and ends the process with
/// all ranks.
[[noreturn]] void endFailed(const Program &program, const RunOptions &options, LocalWorld &world,
                            const Failure &failure) {
  world.abort(failure);
  auto end = std::chrono::steady_clock::now() + crashPatience;
  auto isMoving = [&](int rank) { return rank != failure.rank && !world.status(rank).hasEnded.load(); };
  while (std::ranges::any_of(program.mesh().members(0, allAxes), isMoving) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  RankFailure report(failure, waitingRanks(program, world, /*first=*/0, failure.rank));
  report.slow = slowRanks(world);
  writeFailureReport(program, options, report);
  printError("espalier", report.what());
  std::fflush(nullptr);
  _exit(1);
}

RunResult runInThreads(const Program &program, const RunOptions &options) {
  int ranks = program.mesh().ranks();
  std::optional<StartWatch> start(options);
  PreparedRun run(program, options, {.hostRanks = ranks});
  start.reset();
  LocalWorld world(ranks);
  onCrash([&](const Failure &failure) { endFailed(program, options, world, failure); });
  {
    ProgressWatch watch(
        options, world.statuses(), [&](int rank, StalledRank &to) { describeStalled(program, world.status(rank), to); },
        [&](const Failure &failure) { endFailed(program, options, world, failure); });
    runThreads(run, world);
  }
  onCrash({});
  std::optional<Failure> failure = world.failure();
  if (!failure)
    return run.finish(std::nullopt);
  RankFailure report(*failure, waitingRanks(program, world, /*first=*/0, failure->rank));
  report.slow = slowRanks(world);
  return run.finish(report);
}

} // namespace

RunResult runPlan(const Program &program, const RunOptions &options) {
  try {
    switch (options.comm) {
    case Comm::local:
      break;
    case Comm::shm:
      return runInProcesses(program, options);
    case Comm::mpi:
      return runOverMpi(program, options);
    case Comm::hosts:
      return runOverHosts(program, options);
    }
    return runInThreads(program, options);
  } catch (const RankFailure &error) {
    writeFailureReport(program, options, error);
    throw;
  }
}

} // namespace espalier::rt
