// The process that starts the others opens what the run needs and then only watches: the ranks' processes find all of
// it in their memory. Where a launcher started one for each rank, each of these starts its own rank and watches.
#include "runtime/train/run_processes.h"

#include "runtime/checksum.h"
#include "runtime/crash_report.h"
#include "runtime/launch/host_meeting.h"
#include "runtime/train/failure_report.h"
#include "runtime/train/prepared_run.h"
#include "runtime/train/rank.h"
#include "runtime/train/stop.h"
#include "runtime/train/told_result.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <unistd.h>

namespace espalier::rt {
namespace {

/// How long processes that were started apart wait for each other.
constexpr launch::Milliseconds startTogether{60000};

DevicePlace deviceOf(const RunOptions &options, int rank) {
  if (!options.topology)
    return {rank, options.sharesDevices};
  auto place = std::ranges::find(options.topology->ranks, rank) - options.topology->ranks.begin();
  return {options.topology->devices[place], options.sharesDevices};
}

/// What the ranks of this process find here, before there are any.
void requireDevices(const Program &program, const RunOptions &options, std::span<const int> ranks) {
  std::vector<DeviceDemand> demands;
  for (int rank : ranks)
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

/// Two fifths of the time for silence, as many for the others' end; the rest for who is slow.
Patience patienceOf(const RunOptions &options) {
  Patience patience;
  double looks = options.failureSeconds * 1000 / patience.lookMilliseconds;
  patience.silentLooks = std::max(1, static_cast<int>(looks * 3 / 5));
  patience.stoppingLooks = std::max(1, static_cast<int>(looks / 5));
  return patience;
}

/// Ranks of this host, a part of which this process has, together with others that were started beside it.
class HostRun {
public:
  HostRun(const Program &program, const RunOptions &options);
  RunResult run();

private:
  bool hasFirst() const { return ranks.front() == 0; }
  launch::Member member() const;
  void open();
  void visit();
  int runProcess(int rank);
  [[noreturn]] void tellFailure(const Failure &failure);
  RunResult resultOf(const ToldResult &told) const;

  const Program &program;
  const RunOptions &options;
  const std::vector<int> ranks; ///< of this process
  std::optional<launch::HostMeeting> meeting;
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
  requireRecordsOnly(options);
  requireDevices(program, options, ranks);
  if (options.topology && !options.topology->isOneHost())
    throw PlanError(fmt::format("the ranks of {} hosts cannot share memory; start one host, or mpirun for several",
                                options.topology->nodes));
  shareStopSignal();
  if (options.topology && !options.topology->meeting.empty())
    meeting.emplace(*options.topology, member(), startTogether, options.stopSignal);
  if (hasFirst())
    open();
  else
    visit();
}

launch::Member HostRun::member() const {
  std::string bytes = planFileBytes(program.plan());
  return {checksumText(std::as_bytes(std::span(bytes))), program.plan().compiler(), ranks, /*host=*/"", getpid()};
}

/// Others wait for what the first process opens: it holds the checkpoints' folder.
void HostRun::open() {
  int all = program.mesh().ranks();
  prepared.emplace(program, options, ProcessPlace{.hostRanks = all});
  world = meeting ? ShmWorld::openForOthers(all, sharedBytes(program))
                  : std::make_unique<ShmWorld>(all, sharedBytes(program));
  if (meeting)
    meeting->give({world->file(), prepared->checkpoints ? prepared->checkpoints->token() : "none"});
}

/// What is refused to this process alone stops the others, and is told by it.
void HostRun::visit() {
  launch::HostMeeting::Gift gift = meeting->take();
  world = ShmWorld::join(gift.file);
  try {
    prepared.emplace(program, options,
                     ProcessPlace{.hostRanks = program.mesh().ranks(), .token = gift.words, .hasFirst = false});
  } catch (const std::exception &error) {
    world->claimTelling();
    abortFor([&](const Failure &failure) { world->abort(failure); }, ranks.front(), nullptr, error);
    throw;
  }
}

int HostRun::runProcess(int rank) {
  auto abort = [&](const Failure &failure) { world->abort(failure); };
  onCrash(abort);
  RunContext &context = prepared->context;
  bool isDone = runRank(context, {rank, /*isFirstHere=*/true, prepared->threads, prepared->spins,
                                  deviceOf(options, rank), [&] { return world->communicator(rank); }, abort});
  if (rank == ranks.front() && isDone) {
    if (rank == 0)
      prepared->close();
    results.write(
        {context.result, prepared->checkpoints ? prepared->checkpoints->loadFault() : "", context.metrics.fault()});
  }
  return isDone ? 0 : 1;
}

/// One of the processes that are left tells people; each leaves the report.
void HostRun::tellFailure(const Failure &failure) {
  if (world->claimTelling())
    throw RankFailure(failure);
  writeFailureReport(program, options, failure);
  throw ReportedElsewhere(1);
}

/// Of all that rank 0 says, other processes keep their status.
RunResult HostRun::resultOf(const ToldResult &told) const {
  if (!hasFirst() && (!told.loadFault.empty() || !told.result.divergence.empty()))
    throw ReportedElsewhere(told.loadFault.empty() ? 1 : 2);
  if (!told.loadFault.empty())
    throw PlanError(told.loadFault);
  if (!told.metricsFault.empty())
    throw std::runtime_error(fmt::format("the metrics are not complete: {}", told.metricsFault));
  return told.result;
}

RunResult HostRun::run() {
  std::vector<Process> processes = spawn(*world, ranks, [&](int rank) { return runProcess(rank); });
  std::optional<Failure> failure =
      supervise(processes, *world, patienceOf(options), meeting ? meeting->neighbours() : std::vector<Neighbour>());
  if (failure)
    tellFailure(*failure);
  std::optional<ToldResult> told = results.read();
  if (!told)
    throw std::runtime_error(fmt::format("rank {} ended without the run's result", ranks.front()));
  return resultOf(*told);
}

} // namespace

RunResult runInProcesses(const Program &program, const RunOptions &options) { return HostRun(program, options).run(); }

} // namespace espalier::rt
