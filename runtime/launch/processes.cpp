// Processes are forked and not started anew: what their world maps has the same address in all of them, and what was
// loaded before is there. The watcher is the parent, which sleeps on the kernel's handles of its children.
#include "runtime/launch/processes.h"

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <mutex>
#include <numeric>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace espalier::rt {
namespace {

constexpr std::chrono::milliseconds beatEvery{50};

/// Gives signs of life, from a thread of its own, while this lasts. Signals are the rank's own thread's.
class Heart {
public:
  Heart(ShmWorld &world, int rank) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    thread = std::jthread([&world, rank](std::stop_token end) {
      std::mutex mutex;
      std::unique_lock lock(mutex);
      for (std::condition_variable_any never; !end.stop_requested();
           never.wait_for(lock, end, beatEvery, [] { return false; }))
        world.beat(rank);
    });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

private:
  std::jthread thread;
};

int runBody(ShmWorld &world, int rank, const std::function<int(int)> &body) {
  try {
    Heart heart(world, rank);
    return body(rank);
  } catch (const RankStopped &) {
    // The first failure is kept by the rank that had it.
  } catch (const std::exception &error) {
    Failure failure;
    failure.rank = rank;
    failure.message = error.what();
    world.abort(failure);
  }
  return 1;
}

/// The life of a forked process. Ends without what the parent's exit handlers would do a second time.
[[noreturn]] void live(ShmWorld &world, int rank, pid_t parent, const std::function<int(int)> &body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int status = getppid() == parent ? runBody(world, rank, body) : 1; // else the parent died before the line above
  if (status == 0)
    world.leave(rank);
  std::fflush(nullptr);
  _exit(status);
}

bool isRunning(const Process &process) { return !process.status; }

void reap(Process &process, int options) {
  int status = 0;
  if (waitpid(process.id, &status, options) != process.id)
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

/// Waits for an end of any process or neighbour, for `milliseconds` at most. True if there was none. Neighbours that
/// have ended go to `gone`.
bool waitForEnd(std::span<Process> processes, std::vector<Neighbour> &neighbours, std::vector<Neighbour> &gone,
                int milliseconds) {
  std::vector<pollfd> handles;
  for (const Process &process : processes)
    handles.push_back({process.handle, POLLIN, 0}); // below 0, of an ended one: not looked at
  for (const Neighbour &neighbour : neighbours)
    handles.push_back({neighbour.handle, POLLIN, 0});
  int ended = poll(handles.data(), handles.size(), milliseconds);
  for (Process &process : processes)
    if (isRunning(process))
      reap(process, WNOHANG);
  for (size_t i = neighbours.size(); i-- > 0;)
    if (handles[processes.size() + i].revents != 0) {
      gone.push_back(std::move(neighbours[i]));
      neighbours.erase(neighbours.begin() + static_cast<std::ptrdiff_t>(i));
    }
  return ended == 0;
}

/// Of all ranks of the world. Of those that are not this process's children it is seen that they live, or have left.
std::vector<Sight> lookAt(std::span<const Process> processes, const ShmWorld &world) {
  constexpr Sight notMissed{.status = 0, .hasLeft = true};
  std::vector<Sight> sights;
  for (int rank = 0; rank < world.ranks(); ++rank)
    sights.push_back(world.hasLeft(rank) || world.beats(rank) == 0 ? notMissed : Sight{.beats = world.beats(rank)});
  for (const Process &process : processes)
    sights[process.rank] = {process.status, world.hasLeft(process.rank), world.beats(process.rank)};
  return sights;
}

/// The failure of a neighbour that has ended though its ranks had work to do.
std::optional<Failure> desertionOf(std::span<const Neighbour> gone, const ShmWorld &world) {
  for (const Neighbour &neighbour : gone)
    for (int rank : neighbour.ranks)
      if (!world.hasLeft(rank)) {
        Failure failure;
        failure.rank = rank;
        failure.message = "the process that started it has ended";
        return failure;
      }
  return std::nullopt;
}

} // namespace

std::vector<Process> spawn(ShmWorld &world, std::span<const int> ranks, const std::function<int(int)> &body) {
  std::fflush(nullptr); // or every process would write what is buffered
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
        reap(process, 0);
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

std::optional<Failure> supervise(std::vector<Process> &processes, ShmWorld &world, const Patience &patience,
                                 std::span<const Neighbour> neighbours) {
  Watch watch(world.ranks(), patience);
  std::vector<Neighbour> others(neighbours.begin(), neighbours.end()), gone;
  std::optional<Failure> seen; // stands in where a rank was killed while it reported
  int stopping = 0;
  while (std::ranges::any_of(processes, isRunning)) {
    bool isLook = waitForEnd(processes, others, gone, patience.lookMilliseconds);
    std::optional<Failure> failure = watch.judge(lookAt(processes, world), isLook);
    if (!failure)
      failure = desertionOf(gone, world);
    if (failure) {
      world.abort(*failure);
      auto own = std::ranges::find(processes, failure->rank, &Process::rank);
      if (own != processes.end() && isRunning(*own))
        kill(own->id, SIGKILL);
      if (!seen)
        seen = std::move(failure);
    }
    if (world.isStopped() && isLook && ++stopping >= patience.stoppingLooks)
      killAll(processes);
  }
  std::optional<Failure> reported = world.failure();
  return reported ? reported : seen;
}

} // namespace espalier::rt
