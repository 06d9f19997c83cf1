// Runs ranks on several hosts, with tensors over NCCL. Each process, one per host or one per rank, forks its ranks and
// supervises them. The launchers connect to one address and forward the all-gathers of messages between ranks.
#include "runtime/comm/hosts.h"
#include "runtime/crash_report.h"
#include "runtime/run/failure_report.h"
#include "runtime/run/prepare_rank.h"
#include "runtime/run/progress_watch.h"
#include "runtime/run/rank.h"
#include "runtime/run/rank_processes.h"
#include "runtime/run/run_processes.h"
#include "runtime/run/startup_guard.h"
#include "runtime/run/watched_run.h"
#include "runtime/train/stop.h"

#include <algorithm>
#include <deque>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

/// The time for which hosts wait at the end for messages that are still in flight.
constexpr launch::Milliseconds endTogether{2000};

class HostsRun {
public:
  HostsRun(const Program &program, const RunOptions &options);
  RunResult run();

private:
  launch::Rendezvous rendezvous() const;
  void awaitOthers();
  int runProcess(size_t index);
  RunResult result() const;
  int pollsIn(launch::Milliseconds time) const { return static_cast<int>(time.count() / patience.pollMilliseconds); }

  const Program &program;
  const RunOptions &options;
  const launch::Topology &topology;
  const Patience patience;
  ShmWorld host;
  launch::Launchers launchers;
  std::deque<launch::RankChannel> channels; ///< the ranks' ends of the channels
  std::deque<ResultFile> results;           ///< by rank of this process
  std::optional<RunData> data;
  std::optional<PreparedRun> prepared;
};

/// Returns the shared memory of the ranks of a host: buffers for the messages of all ranks.
size_t sharedBytes(const Program &program, size_t hostRanks) {
  constexpr size_t besides = size_t{1} << 16;
  size_t ranks = program.mesh().ranks();
  return hostRanks * (2 * ranks * Agreement::messageBytes + besides);
}

/// Returns the run's topology. Throws PlanError if the ranks of this process are not consecutive.
const launch::Topology &requireNeighbours(const RunOptions &options) {
  const launch::Topology &topology = *options.topology;
  for (size_t i = 1; i < topology.ranks.size(); ++i)
    if (topology.ranks[i] != topology.ranks[0] + static_cast<int>(i))
      throw PlanError(fmt::format("rank {} of this host does not follow rank {}; give each host neighbouring ranks",
                                  topology.ranks[i], topology.ranks[i - 1]));
  if (topology.rendezvous.empty())
    throw PlanError("the hosts do not know where to meet: give all of them --rendezvous HOST:PORT, an address of the "
                    "host of rank 0");
  return topology;
}

HostsRun::HostsRun(const Program &program, const RunOptions &options)
    : program(program), options(options), topology(requireNeighbours(options)), patience(launcherPatienceOf(options)),
      host(static_cast<int>(topology.ranks.size()), sharedBytes(program, topology.ranks.size()),
           topology.ranks.front()),
      launchers([this] { return std::optional(rendezvous()); }, host.keyValues(), patience) {
  guardStartup(options, [&] {
    requireRecordsOnly(options);
    requireDevices(program, options, topology.ranks);
    StartWatch start(options);
    // The forked ranks of this process share the datasets.
    data = openData(program, options, {.hostRanks = options.hostRanks(topology.world)});
  });
  shareStopSignal();
  awaitOthers();
  std::vector<launch::RankChannel> own;
  for (size_t i = 0; i < topology.ranks.size(); ++i) {
    auto [launchersEnd, ranksEnd] = launch::makeRankChannel();
    own.push_back(std::move(launchersEnd));
    channels.push_back(std::move(ranksEnd));
    results.emplace_back();
  }
  launchers.serve(std::move(own));
}

launch::Rendezvous HostsRun::rendezvous() const {
  launch::Rendezvous rendezvous{.endpoint = launch::parseEndpoint(topology.rendezvous),
                                .token = options.token,
                                .own = memberOf(program, topology)};
  rendezvous.world = topology.world;
  rendezvous.isFirst = topology.ranks.front() == 0;
  rendezvous.joinTime = startTogether;
  return rendezvous;
}

/// Waits until all ranks have a launcher. A failure here is a user error, because no rank has begun. The failure also
/// reaches launchers that connect later, so that they do not wait.
void HostsRun::awaitOthers() {
  auto signal = [&] { return options.stopSignal ? options.stopSignal() : 0; };
  auto isOver = [&] { return launchers.isComplete() || launchers.failure() || signal() != 0; };
  launchers.turn(/*isPoll=*/false);
  pollUntil(launchers, patience, pollsIn(startTogether), isOver);
  if (int received = signal())
    throw ReportedElsewhere(128 + received);
  if (std::optional<Failure> failure = launchers.failure()) {
    PlanError error(failure->message);
    if (launchers.haveAllCome())
      throw error;
    printAtOnce(error);
    pollUntil(launchers, patience, pollsIn(startTogether), [&] { return launchers.haveAllCome() || signal() != 0; });
    throw ReportedElsewhere(2);
  }
  if (!launchers.isComplete()) {
    Failure absence;
    absence.message = fmt::format("ranks {} have not come within {} seconds: has every host been started, with this "
                                  "rendezvous ({})?",
                                  launchers.missing(), startTogether.count() / 1000, topology.rendezvous);
    launchers.report(absence); // else the hosts that have come would blame this one
    launchers.turn(/*isPoll=*/false);
    throw PlanError(absence.message);
  }
}

int HostsRun::runProcess(size_t index) {
  onCrash([&](const Failure &failure) { host.abort(failure); });
  int rank = topology.ranks[index];
  std::unique_ptr<Communicator> communicator = openHosts(host, rank, topology.world, std::move(channels[index]));
  communicator->activity = &host.status(static_cast<int>(index)).main;
  Agreement agreement(*communicator, /*isFirstHere=*/true, /*spins=*/0);
  prepareRank(prepared, program, options, agreement, rank, data);
  bool isDone = runRank(prepared->context,
                        {rank, /*isFirstHere=*/true, prepared->threads, prepared->spins, deviceOf(options, rank),
                         [&] { return std::move(communicator); }, [&](const Failure &failure) { host.abort(failure); },
                         [] {}, &host.status(static_cast<int>(index))});
  if (isDone)
    leaveResult(*prepared, rank, results[index]);
  return isDone ? 0 : 1;
}

/// Returns the result of the first rank of this process. Throws the start-up error of any rank.
RunResult HostsRun::result() const {
  for (const ResultFile &file : results)
    if (std::optional<RankResult> result = file.read();
        result && result->startupError && !result->startupError->isElsewhere)
      result->startupError->raise();
  return resultOf(results.front());
}

RunResult HostsRun::run() {
  std::vector<Process> processes =
      spawn(host, [&](int index) { return runReporting(results[index], [&] { return runProcess(index); }); });
  std::optional<RankFailure> failure = watchRun(program, options, host, processes, {.launchers = &launchers});
  if (!failure) {
    // Messages for other hosts may still be in flight, so the first launcher exits last.
    pollUntil(launchers, patience, pollsIn(endTogether), [&] { return launchers.haveLeft(); });
    return result();
  }
  if (launchers.isReporter())
    throw *failure;
  writeFailureReport(program, options, *failure);
  awaitReporter(launchers, patience);
  throw ReportedElsewhere(1);
}

} // namespace

RunResult runOverHosts(const Program &program, const RunOptions &options) { return HostsRun(program, options).run(); }

} // namespace espalier::rt
