// Ranks communicate over MPI, and their launchers over the control channel. Rank 0 broadcasts the channel's address and
// token to all ranks as soon as MPI has started.
#include "runtime/run/mpi_rank.h"

#include "runtime/crash_report.h"
#include "runtime/launch/channel_address.h"
#include "runtime/launch/mpi_daemon.h"
#include "runtime/run/failure_report.h"
#include "runtime/run/prepare_rank.h"
#include "runtime/run/rank_processes.h"
#include "runtime/run/startup_guard.h"
#include "runtime/run/watched_run.h"
#include "runtime/train/stop.h"

#include <algorithm>
#include <fmt/format.h>
#include <thread>
#include <unistd.h>

namespace espalier::rt {
namespace {

/// The size of the memory that a launcher and its rank share besides the rank's status. Tensors are not part of it.
constexpr size_t sharedBytes = size_t{1} << 16;
constexpr const char *tokenKey = ".token";

/// Broadcasts the address and the token of the control channel from rank 0's launcher to all ranks. Ranks begin only
/// after their launchers have connected: a launcher that connects after a failure would find no peer and report that as
/// the failure.
void tellChannel(ShmWorld &host, Agreement &agreement, int rank) {
  std::string mine;
  if (rank == 0)
    mine = host.keyValues().find(launch::channelKey).value_or("") + " " + host.keyValues().find(tokenKey).value_or("");
  std::string agreed = agreement.first(mine);
  size_t end = agreed.find(' ');
  if (rank == 0)
    return;
  host.keyValues().post(tokenKey, agreed.substr(end + 1));
  host.keyValues().post(launch::channelKey, agreed.substr(0, end));
  while (!host.keyValues().find(launch::joinedKey)) {
    if (host.isStopped())
      throw RankStopped();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Runs one rank in its own process and returns the exit status.
int liveAsRank(const Program &program, ShmWorld &host, const ResultFile &results, const MpiWork &work) {
  onCrash([&](const Failure &failure) { host.abort(failure); });
  std::shared_ptr<void> kept;
  MpiWorld world(&host);
  int ranks = program.mesh().ranks();
  if (world.ranks() != ranks)
    throw PlanError(fmt::format("MPI has {} processes, the plan {} ranks; start as many", world.ranks(), ranks));
  std::unique_ptr<Communicator> communicator = world.communicator();
  communicator->activity = &host.status(0).main;
  Agreement agreement(*communicator, /*isFirstHere=*/true, /*spins=*/0);
  tellChannel(host, agreement, world.rank());
  auto abort = [&](const Failure &failure) {
    host.abort(failure);
    world.abort(failure);
  };
  MpiPlace place{world, agreement, host.status(0), std::move(communicator), abort, results, kept};
  bool isDone = work(place);
  if (std::optional<Failure> heard = world.failure())
    host.abort(*heard); // else the launcher would report this rank's exit as the first failure
  return isDone ? 0 : 1;
}

std::string makeToken() {
  std::string token;
  for (uint8_t byte : launch::makeNonce())
    token += fmt::format("{:02x}", byte);
  return token;
}

/// Returns the rendezvous of the launchers, once known. The first launcher chooses the address; the others get the
/// address from their ranks.
std::optional<launch::Rendezvous> rendezvousOf(const Program &program, const RunOptions &options, ShmWorld &host,
                                               Comparing comparing) {
  std::optional<std::string> token = host.keyValues().find(tokenKey),
                             published = host.keyValues().find(launch::channelKey);
  bool isFirst = host.firstRank() == 0;
  if (!token || (!isFirst && !published))
    return std::nullopt;
  launch::Topology own = options.topology.value_or(launch::Topology());
  own.ranks = {host.firstRank()};
  launch::Rendezvous rendezvous{.own = comparing == Comparing::Ranks ? describeProcess(own) : memberOf(program, own),
                                .world = program.mesh().ranks()};
  rendezvous.isFirst = isFirst;
  std::string address;
  if (!isFirst)
    address = *published;
  else if (options.topology && !options.topology->rendezvous.empty())
    address = options.topology->rendezvous;
  else
    address = launch::channelHost(launch::environmentOfProcess(), rendezvous.own.host) + ":0";
  rendezvous.token = *token;
  rendezvous.endpoint = launch::parseEndpoint(address);
  return rendezvous;
}

/// Returns the result of the rank. If another process reports the error, waits for that process first, because mpirun
/// kills all processes soon after one exits with an error.
RunResult resultOfTold(const ResultFile &results, launch::Launchers &launchers, const RunOptions &options) {
  try {
    return resultOf(results);
  } catch (const ReportedElsewhere &) {
    awaitReporter(launchers, patienceOf(options));
    throw;
  }
}

} // namespace

RunResult launchMpiRank(const Program &program, const RunOptions &options, Comparing comparing, const MpiWork &work) {
  int rank = options.topology ? options.topology->ranks.front() : launch::launchedRank(launch::environmentOfProcess());
  ShmWorld host(/*ranks=*/1, sharedBytes, rank);
  ResultFile results;
  shareStopSignal();
  launch::Launchers launchers([&] { return rendezvousOf(program, options, host, comparing); }, host.keyValues(),
                              launcherPatienceOf(options));
  if (rank == 0) {
    host.keyValues().post(tokenKey, makeToken());
    guardStartup(options, [&] { // listens before the rank asks for the address, which the user may have given
      launchers.turn(/*isPoll=*/false);
      if (std::optional<Failure> failure = launchers.failure())
        throw PlanError(failure->message);
    });
  }
  std::vector<Process> processes =
      spawn(host, [&](int) { return runReporting(results, [&] { return liveAsRank(program, host, results, work); }); });
  std::optional<RankFailure> failure = watchRun(program, options, host, processes, {.launchers = &launchers});
  // A rank that received a start-up error may exit after the first launcher has gone, and its own launcher then finds
  // no peer.
  if (std::optional<RankResult> result = results.read(); !failure || (result && result->startupError))
    return resultOfTold(results, launchers, options);
  // If the ranks never connected, this failure only follows from the failure that another process reports.
  if (failure->failure.isEcho && !launchers.isComplete())
    throw std::runtime_error(failure->what());
  if (options.topology && options.topology->launcher == launch::Topology::Mpi && !options.topology->isOneHost())
    launch::endDaemonBehind(getppid());
  if (launchers.isReporter())
    throw *failure;
  writeFailureReport(program, options, *failure);
  awaitReporter(launchers, patienceOf(options));
  throw ReportedElsewhere(1);
}

} // namespace espalier::rt
