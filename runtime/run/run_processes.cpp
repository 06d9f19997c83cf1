// The parent process opens the inputs and then only supervises. The forked ranks inherit the inputs in their memory. If
// a launcher started one process per rank, each of these forks and supervises its own rank.
#include "runtime/run/run_processes.h"

#include "runtime/crash_report.h"
#include "runtime/launch/host_rendezvous.h"
#include "runtime/run/failure_report.h"
#include "runtime/run/prepared_run.h"
#include "runtime/run/progress_watch.h"
#include "runtime/run/rank.h"
#include "runtime/run/rank_processes.h"
#include "runtime/run/startup_guard.h"
#include "runtime/run/watched_run.h"
#include "runtime/train/stop.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <unistd.h>

namespace espalier::rt {
namespace {

/// The ranks of this host that belong to this process, with the peers that were started beside it.
class HostRun {
public:
  HostRun(const Program &program, const RunOptions &options);
  RunResult run();

private:
  bool hasFirst() const { return ranks.front() == 0; }
  void open();
  void visit();
  int runProcess(int rank);
  [[noreturn]] void tellFailure(const RankFailure &failure);

  const Program &program;
  const RunOptions &options;
  const std::vector<int> ranks; ///< of this process
  std::optional<launch::HostRendezvous> rendezvous;
  std::optional<PreparedRun> prepared;
  std::unique_ptr<ShmWorld> world;
  ResultFile results;
};

std::vector<int> ranksOf(const Program &program, const RunOptions &options) {
  if (options.topology)
    return options.topology->ranks;
  std::vector<int> all(program.mesh().ranks());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

HostRun::HostRun(const Program &program, const RunOptions &options)
    : program(program), options(options), ranks(ranksOf(program, options)) {
  guardStartup(options, [&] {
    requireRecordsOnly(options);
    requireDevices(program, options, ranks);
  });
  shareStopSignal();
  if (options.topology && !options.topology->hostRendezvous.empty())
    rendezvous.emplace(*options.topology, memberOf(program, *options.topology), startTogether, options.stopSignal);
  if (hasFirst())
    open();
  else
    visit();
}

/// Opens the inputs and creates the shared memory in the first process, which locks the checkpoint folder. The peers
/// wait for both.
void HostRun::open() {
  int all = program.mesh().ranks();
  std::optional<StartWatch> watch(options); // its thread ends before ranks are forked
  prepared.emplace(program, options, ProcessPlace{.hostRanks = all});
  watch.reset();
  world = rendezvous ? ShmWorld::openForOthers(all, sharedBytesOf(program))
                     : std::make_unique<ShmWorld>(all, sharedBytesOf(program));
  if (rendezvous)
    rendezvous->send({world->file(), prepared->checkpoints ? prepared->checkpoints->token() : noToken});
}

/// Opens the inputs in the other processes. A start-up error in one process stops its peers, and that process reports
/// it.
void HostRun::visit() {
  launch::HostRendezvous::Setup setup = rendezvous->receive();
  world = ShmWorld::join(setup.file);
  try {
    StartWatch watch(options);
    prepared.emplace(program, options,
                     ProcessPlace{.hostRanks = program.mesh().ranks(),
                                  .token = setup.checkpointToken,
                                  .hasFirst = false,
                                  .isMemoryChecked = true});
  } catch (const std::exception &error) {
    world->claimReport();
    abortFor([&](const Failure &failure) { world->abort(failure); }, ranks.front(), nullptr, error);
    throw;
  }
}

int HostRun::runProcess(int rank) {
  auto abort = [&](const Failure &failure) { world->abort(failure); };
  onCrash(abort);
  RunContext &context = prepared->context;
  bool isDone =
      runRank(context, {rank, /*isFirstHere=*/true, prepared->threads, prepared->spins, deviceOf(options, rank),
                        [&] { return world->communicator(rank); }, abort, [] {}, &world->status(rank)});
  if (rank == ranks.front() && isDone)
    leaveResult(*prepared, rank, results);
  return isDone ? 0 : 1;
}

/// Reports a failure. One of the surviving processes prints the error; each process writes the report.
void HostRun::tellFailure(const RankFailure &failure) {
  if (world->claimReport())
    throw failure;
  writeFailureReport(program, options, failure);
  throw ReportedElsewhere(1);
}

RunResult HostRun::run() {
  std::vector<Process> processes = spawn(*world, ranks, [&](int rank) { return runProcess(rank); });
  std::vector<Neighbour> neighbours;
  if (rendezvous)
    neighbours = rendezvous->neighbours();
  if (std::optional<RankFailure> failure = watchRun(program, options, *world, processes, {neighbours}))
    tellFailure(*failure);
  return resultOf(results);
}

} // namespace

size_t sharedBytesOf(const Program &program) {
  constexpr size_t besides = size_t{1} << 16; // the status of each rank, and the buffers of the rendezvous
  auto ranks = static_cast<size_t>(program.mesh().ranks());
  size_t bytes = Agreement::sharedBytes(ranks) + ranks * besides;
  for (const pb::Stage &stage : program.plan().stages())
    bytes += program.plan().target() != "cpu" ? 0 : stage.arena_bytes(pb::DEVICE) * (ranks / program.mesh().count(PP));
  return bytes;
}

RunResult runInProcesses(const Program &program, const RunOptions &options) { return HostRun(program, options).run(); }

} // namespace espalier::rt
