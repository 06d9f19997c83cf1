#include "runtime/run/watched_run.h"

#include "runtime/describe_place.h"
#include "runtime/run/failure_report.h"
#include "runtime/run/rank_processes.h"

#include <algorithm>
#include <csignal>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

namespace espalier::rt {
namespace {

/// Returns the signal that ended the process when it arrived for the second time, or 0.
int endSignalOf(const RunOptions &options, const Process &process) {
  bool wasAsked = options.stopSignal && options.stopSignal() != 0;
  int code = process.status && WIFEXITED(*process.status) ? WEXITSTATUS(*process.status) : 0;
  return wasAsked && code > 128 ? code - 128 : 0;
}

/// Ends this process in the same way as its ranks if their end is no failure: a second signal on any host, or a broken
/// pipe on rank 0's output.
void endAsRanksDid(const Failure &failure, std::span<const Process> processes) {
  auto hasNoReader = [](const Process &process) {
    return process.status && WIFSIGNALED(*process.status) && WTERMSIG(*process.status) == SIGPIPE;
  };
  if (std::ranges::any_of(processes, hasNoReader)) {
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  if (failure.endSignal != 0)
    _exit(128 + failure.endSignal);
}

} // namespace

Patience patienceOf(const RunOptions &options) {
  Patience patience;
  double polls = options.failureSeconds * 1000 / patience.pollMilliseconds;
  patience.silentPolls = std::max(1, static_cast<int>(polls * 3 / 5));
  patience.stoppingPolls = std::max(1, static_cast<int>(polls / 5));
  return patience;
}

Patience launcherPatienceOf(const RunOptions &options) {
  Patience patience = patienceOf(options);
  patience.silentPolls = std::max(1, static_cast<int>(options.failureSeconds * 1000 / patience.pollMilliseconds / 2));
  return patience;
}

StallPatience stallPatienceOf(const RunOptions &options) {
  return {.seconds = options.stallSeconds, .endSeconds = options.failureSeconds};
}

std::optional<RankFailure> watchRun(const Program &program, const RunOptions &options, ShmWorld &world,
                                    std::vector<Process> &processes, const OtherWatchers &others) {
  Supervision how{.patience = patienceOf(options), .neighbours = others.neighbours, .others = others.launchers};
  // mpirun kills its processes one second after the first error, so the report must appear within that second.
  constexpr int stoppingPolls = 3;
  if (others.launchers)
    how.patience.stoppingPolls = std::min(how.patience.stoppingPolls, stoppingPolls);
  if (options.stopSignal)
    how.endSignal = options.stopSignal;
  how.rendezvousPolls = static_cast<int>(startTogether / launch::Milliseconds(how.patience.pollMilliseconds));
  how.describe = [&](int rank, Failure &failure) {
    if (auto own = std::ranges::find(processes, rank, &Process::rank); own != processes.end())
      failure.endSignal = endSignalOf(options, *own);
    describePlace(program.plan(), program.mesh().stage(world.firstRank() + rank), world.status(rank), failure);
  };
  how.stall = stallPatienceOf(options);
  how.tellStalled = [&](int rank, StalledRank &to) { describeStalled(program, world.status(rank), to); };
  std::optional<Failure> failure = supervise(processes, world, how);
  if (!failure) {
    if (others.launchers)
      others.launchers->leave();
    return std::nullopt;
  }
  endAsRanksDid(*failure, processes);
  std::vector<Waiting> waiting = waitingRanks(program, world, world.firstRank(), failure->rank);
  RankFailure report = others.launchers ? settle(*others.launchers, std::move(waiting), how.patience)
                                        : RankFailure(*failure, std::move(waiting));
  report.slow = slowRanks(world);
  return report;
}

void leaveResult(PreparedRun &run, int rank, const ResultFile &results) {
  if (rank == 0)
    run.close();
  RankResult result{run.context.result, run.context.loadFault, run.context.metrics.fault(), {}};
  if (rank > 0 && (!result.loadFault.empty() || !result.run.divergence.empty()))
    result.startupError = StartupError{.status = result.loadFault.empty() ? 1 : 2, .isElsewhere = true};
  results.write(result);
}

RunResult resultOf(const ResultFile &results) {
  std::optional<RankResult> result = results.read();
  if (!result)
    throw std::runtime_error("a rank ended without the run's result");
  if (result->startupError)
    result->startupError->raise();
  if (!result->loadFault.empty())
    throw PlanError(result->loadFault);
  if (!result->metricsFault.empty())
    throw std::runtime_error(fmt::format("the metrics are not complete: {}", result->metricsFault));
  return std::move(result->run);
}

} // namespace espalier::rt
