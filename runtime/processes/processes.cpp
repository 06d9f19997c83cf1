// Ranks are forked without exec, so their shared mappings have equal addresses and they inherit what the parent has
// loaded. The parent supervises its children and sleeps on their pidfds.
#include "runtime/processes/processes.h"

#include "messages/error_line.h"
#include "runtime/launch/thread_stack.h"
#include "runtime/processes/child_process.h"
#include "runtime/stoppable_sleep.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <new>
#include <numeric>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace espalier::rt {
namespace {

constexpr std::chrono::milliseconds beatEvery{50};
/// The polls for which a supervisor waits for processes that it has killed.
constexpr int mostKillingPolls = 20;

/// Ends the run of a rank whose supervisor has been stopped, and with it all ranks that it supervises: these die with
/// it, so one rank prints before it ends the supervisor. The others do so only if the run lives on.
void endSupervisor(ShmWorld &world, pid_t supervisor, bool isLate) {
  bool isFirst = world.claimReport();
  try {
    if (isFirst)
      printError("espalier",
                 fmt::format("the process {} that supervises ranks of this run has given no sign of life for {} "
                             "seconds: it was stopped; all ranks end",
                             supervisor, supervisorPatience.count()));
  } catch (const std::bad_alloc &) {
    // The ranks end without a word.
  }
  if (isFirst || isLate)
    kill(supervisor, SIGKILL);
}

/// Sends heartbeats from a thread of its own as long as the object exists, and listens to those of the supervisor.
/// Counts its own beats, as Watch does. Signals go to the rank's main thread.
class Heart {
public:
  Heart(ShmWorld &world, int rank, pid_t supervisor) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    thread = std::jthread([this, &world, rank, supervisor](const std::stop_token &isOver) {
      RankStatus &status = world.status(rank);
      uint32_t heard = 0;
      int silentBeats = 0;
      do {
        status.beats.fetch_add(1, std::memory_order_relaxed);
        uint32_t before = std::exchange(heard, status.launcherBeats.load(std::memory_order_relaxed));
        silentBeats = heard == 0 || heard != before ? 0 : silentBeats + 1;
        if (silentBeats * beatEvery >= supervisorPatience)
          endSupervisor(world, supervisor, silentBeats * beatEvery >= supervisorPatience + std::chrono::seconds(1));
      } while (between.sleep(isOver, beatEvery));
    });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

private:
  StoppableSleep between;
  std::jthread thread;
};

int runBody(ShmWorld &world, int rank, pid_t parent, const std::function<int(int)> &body) {
  try {
    Heart heart(world, rank, parent);
    WatchedThread watched(&world.status(rank).main);
    return body(rank);
  } catch (const RankStopped &) {
    // The rank that failed first has recorded its failure.
  } catch (const std::exception &error) {
    Failure failure;
    failure.rank = world.firstRank() + rank;
    failure.message = error.what();
    world.abort(failure);
  }
  return 1;
}

/// Runs a forked process. Exits without the parent's exit handlers, which must not run twice.
[[noreturn]] void live(ShmWorld &world, int rank, pid_t parent, const std::function<int(int)> &body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int status =
      getppid() == parent ? runBody(world, rank, parent, body) : 1; // else the parent died before the call of prctl
  if (status == 0)
    world.status(rank).hasLeft.store(true, std::memory_order_release);
  std::fflush(nullptr);
  _exit(status);
}

bool isRunning(const Process &process) { return !process.status; }

/// Notes the wait status of a process that has ended.
void noteEnd(Process &process, std::optional<int> status) {
  if (!status)
    return;
  process.status = status;
  close(process.handle);
  process.handle = -1;
}

void killAll(std::span<Process> processes) {
  for (Process &process : processes)
    if (isRunning(process))
      kill(process.id, SIGKILL);
}

/// Counts the poll intervals of a supervisor. An interval ends at its time, however often the supervisor woke up
/// before. A supervisor that was suspended counts one interval.
class PollTimer {
public:
  explicit PollTimer(int milliseconds) : length(milliseconds), end(Clock::now() + length) {}

  int millisecondsLeft() const {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    return static_cast<int>(std::max(left, std::chrono::milliseconds(0)).count());
  }

  bool isOver() {
    if (Clock::now() < end)
      return false;
    end = Clock::now() + length;
    return true;
  }

private:
  using Clock = std::chrono::steady_clock;
  std::chrono::milliseconds length;
  Clock::time_point end;
};

/// Waits until a process or neighbour ends, or a launcher sends a message, for `milliseconds` at most. Moves ended
/// neighbours to `gone`.
void waitForNews(std::span<Process> processes, std::vector<Neighbour> &neighbours, std::vector<Neighbour> &gone,
                 const launch::Launchers *others, int milliseconds) {
  std::vector<pollfd> handles;
  for (const Process &process : processes)
    handles.push_back({process.handle, POLLIN, 0}); // poll ignores the negative handle of an ended process
  for (const Neighbour &neighbour : neighbours)
    handles.push_back({neighbour.handle, POLLIN, 0});
  if (others)
    others->addHandles(handles);
  poll(handles.data(), handles.size(), milliseconds);
  for (Process &process : processes)
    if (isRunning(process))
      noteEnd(process, endedStatus(process.id));
  for (size_t i = neighbours.size(); i-- > 0;)
    if (handles[processes.size() + i].revents != 0) {
      gone.push_back(std::move(neighbours[i]));
      neighbours.erase(neighbours.begin() + static_cast<std::ptrdiff_t>(i));
    }
}

/// Returns the failure of a host whose peers' launchers do not connect. The cause is another failure or a signal.
Failure lonely(const ShmWorld &world, const Supervision &how) {
  Failure failure;
  failure.rank = world.firstRank();
  failure.isEcho = true;
  failure.endSignal = how.endSignal();
  failure.message = fmt::format("not all ranks have begun within {} seconds: one ended before, or their hosts do not "
                                "reach each other",
                                how.rendezvousPolls * how.patience.pollMilliseconds / 1000);
  return failure;
}

/// Forwards failures from this host to the other hosts and back.
void exchange(launch::Launchers &others, ShmWorld &world, bool &isReported, bool isPoll) {
  std::optional<Failure> own = world.failure();
  if (own && !std::exchange(isReported, true))
    others.report(*own);
  others.turn(isPoll);
  std::optional<Failure> heard = others.failure();
  if (heard && !world.isStopped()) {
    isReported = true;
    world.abort(*heard);
  }
}

/// Returns what is known of each rank of the world. Ranks of other processes only show whether they are alive or have
/// completed.
std::vector<Sight> lookAt(std::span<const Process> processes, const ShmWorld &world) {
  constexpr Sight notMissed{.status = 0, .hasLeft = true};
  std::vector<Sight> sights;
  auto sightOf = [&](int rank, std::optional<int> status) {
    const RankStatus &rankStatus = world.status(rank);
    return Sight{status, rankStatus.hasLeft.load(std::memory_order_acquire),
                 rankStatus.beats.load(std::memory_order_relaxed)};
  };
  for (int rank = 0; rank < world.ranks(); ++rank) {
    Sight sight = sightOf(rank, std::nullopt);
    sights.push_back(sight.hasLeft || sight.beats == 0 ? notMissed : sight);
  }
  for (const Process &process : processes)
    sights[process.rank] = sightOf(process.rank, process.status);
  return sights;
}

/// Returns the failure of a writer of checkpoints on this host that does not move, or, without launchers of other
/// hosts, of ranks that do not move. Tells such launchers when the ranks of this host cease to move, or move again.
std::optional<Failure> stallOf(ShmWorld &world, const StallWatch &watch, const Supervision &how, bool &isReported) {
  if (watch.stalledWriter() >= 0)
    return writerStall(world.statuses(), watch, world.firstRank(), how.tellStalled);
  if (watch.isStalled() == isReported)
    return std::nullopt;
  isReported = watch.isStalled();
  std::vector<StalledRank> ranks;
  if (isReported)
    ranks = describeStall(world.statuses(), watch, world.firstRank(), how.tellStalled);
  if (how.others)
    how.others->reportStall(std::move(ranks));
  else if (!ranks.empty())
    return blame(ranks);
  return std::nullopt;
}

/// Returns the failure of a neighbour that ended before its ranks completed.
std::optional<Failure> desertionOf(std::span<const Neighbour> gone, const ShmWorld &world) {
  for (const Neighbour &neighbour : gone)
    for (int rank : neighbour.ranks)
      if (!world.status(rank).hasLeft.load(std::memory_order_acquire)) {
        Failure failure;
        failure.rank = rank;
        failure.message = "the process that started it has ended";
        return failure;
      }
  return std::nullopt;
}

} // namespace

std::vector<Process> spawn(ShmWorld &world, std::span<const int> ranks, const std::function<int(int)> &body) {
  std::fflush(nullptr); // else every process would write the buffered output
  std::vector<Process> processes;
  processes.reserve(ranks.size());
  pid_t parent = getpid();
  for (int rank : ranks) {
    pid_t id = fork();
    if (id == 0)
      live(world, rank, parent, body);
    int handle = id > 0 ? static_cast<int>(syscall(SYS_pidfd_open, id, 0)) : -1;
    int error = errno;
    if (id > 0)
      processes.push_back({rank, id, handle, std::nullopt});
    if (handle < 0) {
      killAll(processes);
      for (Process &process : processes)
        noteEnd(process, waitFor(process.id));
      throw MemoryError(
          fmt::format("the system refuses process {} of {}: {}", rank + 1, world.ranks(), strerror(error)));
    }
  }
  return processes;
}

std::vector<Process> spawn(ShmWorld &world, const std::function<int(int)> &body) {
  std::vector<int> ranks(world.ranks());
  std::iota(ranks.begin(), ranks.end(), 0);
  return spawn(world, ranks, body);
}

std::optional<Failure> supervise(std::vector<Process> &processes, ShmWorld &world, const Supervision &how) {
  launch::Launchers *others = how.others;
  Watch watch(world.ranks(), how.patience);
  StallWatch stallWatch(world.ranks(), how.stall);
  PollTimer timer(how.patience.pollMilliseconds);
  std::vector<Neighbour> neighbours = how.neighbours, gone;
  std::optional<Failure> seen; // used if a rank was killed while it recorded its failure
  bool isReported = false, isStallReported = false;
  int stopping = 0, waitedPolls = 0;
  while (std::ranges::any_of(processes, isRunning)) {
    for (const Process &process : processes) // before the first wait, so that ranks know that they are supervised
      world.status(process.rank).launcherBeats.fetch_add(1, std::memory_order_relaxed);
    waitForNews(processes, neighbours, gone, others, timer.millisecondsLeft());
    bool isPoll = timer.isOver();
    std::optional<Failure> failure = watch.judge(lookAt(processes, world), isPoll);
    if (!failure)
      failure = desertionOf(gone, world);
    if (!failure && isPoll && !world.isStopped()) {
      stallWatch.poll(world.statuses(), [&] { return how.endSignal() != 0; });
      failure = stallOf(world, stallWatch, how, isStallReported);
      if (failure)
        failure->rank -= world.firstRank();
    }
    if (failure) {
      auto own = std::ranges::find(processes, failure->rank, &Process::rank);
      how.describe(failure->rank, *failure);
      failure->rank += world.firstRank();
      world.abort(*failure);
      if (own != processes.end() && isRunning(*own))
        kill(own->id, SIGKILL);
      if (!seen)
        seen = std::move(failure);
    }
    bool isWaiting = others && isPoll && !others->isComplete() && !world.isStopped();
    if (isWaiting && (++waitedPolls >= how.rendezvousPolls || how.endSignal() != 0))
      world.abort(lonely(world, how));
    if (others)
      exchange(*others, world, isReported, isPoll);
    if (world.isStopped() && isPoll && ++stopping >= how.patience.stoppingPolls)
      killAll(processes);
    if (stopping >= how.patience.stoppingPolls + mostKillingPolls)
      break; // a call to a disk that does not answer outlives SIGKILL
  }
  if (others)
    exchange(*others, world, isReported, /*isPoll=*/false);
  std::optional<Failure> reported = world.failure();
  return reported ? reported : seen;
}

bool pollUntil(launch::Launchers &others, const Patience &patience, int mostPolls,
               const std::function<bool()> &isOver) {
  std::vector<Neighbour> none, gone;
  PollTimer timer(patience.pollMilliseconds);
  for (int passed = 0; !isOver() && passed < mostPolls;) {
    waitForNews({}, none, gone, &others, timer.millisecondsLeft());
    bool isPoll = timer.isOver();
    others.turn(isPoll);
    passed += isPoll;
  }
  return isOver();
}

RankFailure settle(launch::Launchers &others, std::vector<Waiting> waiting, const Patience &patience) {
  others.settle(std::move(waiting));
  pollUntil(others, patience, INT_MAX, [&] { return others.hasReport(); });
  return others.report();
}

void awaitReporter(launch::Launchers &others, const Patience &patience) {
  constexpr int mostPolls = 5;
  pollUntil(others, patience, mostPolls, [&] { return others.hasFirstEnded(); });
}

} // namespace espalier::rt
