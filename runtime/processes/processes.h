// Forks, supervises and ends ranks as processes of this host. Several processes may each do so for a subset of the
// ranks.
#pragma once

#include "runtime/comm/shm.h"
#include "runtime/launch/launchers.h"
#include "runtime/launch/stall.h"
#include "runtime/launch/watch.h"

#include <chrono>
#include <climits>
#include <functional>
#include <sys/types.h>

namespace espalier::rt {

/// The process of one rank, a child of this process.
struct Process {
  int rank = -1; ///< in its world
  pid_t id = -1;
  int handle = -1;           ///< pidfd, readable once the process has ended
  std::optional<int> status; ///< the status from waitpid, once the process has ended
};

/// Forks a process for each of `ranks` of `world`. The process runs body(rank), sends heartbeats, and exits with the
/// result; 0 means that the rank has completed. An exception is the rank's failure. The processes die with the calling
/// thread. No other thread may hold a lock during the call, because the forked processes could not release the lock.
/// Throws MemoryError if a fork fails, after the forked processes have ended.
std::vector<Process> spawn(ShmWorld &world, std::span<const int> ranks, const std::function<int(int rank)> &body);
/// Forks a process for each rank of `world`.
std::vector<Process> spawn(ShmWorld &world, const std::function<int(int rank)> &body);

/// The time after which ranks end whose supervisor has been stopped.
constexpr std::chrono::seconds supervisorPatience{10};

/// The options of supervision.
struct Supervision {
  Patience patience = {};
  std::vector<Neighbour> neighbours = {};
  launch::Launchers *others = nullptr; ///< launchers of other hosts; null: none
  int rendezvousPolls = INT_MAX;       ///< polls until `others` must be complete; afterwards these ranks stop
  /// Returns the signal that asked this process to end, or 0. As long as `others` are not complete, no rank has begun,
  /// so a signal stops these ranks at once.
  std::function<int()> endSignal = [] { return 0; };
  /// Completes the failure of a rank that could not describe its position. `rank` is the rank's number in the world.
  std::function<void(int rank, Failure &failure)> describe = [](int, Failure &) {};
  StallPatience stall = {};
  StallTeller tellStalled = [](int, StalledRank &) {};
};

/// Waits until all processes have ended. All ranks of `world` stop if a rank fails or sends no heartbeat, or if a
/// neighbour ends before its ranks have completed. A silent rank is killed, because it cannot see the stop. Ranks that
/// do not end soon afterwards are killed too. Returns the first failure, as a rank recorded or as this process
/// observed. With `others`, failures spread between hosts.
std::optional<Failure> supervise(std::vector<Process> &processes, ShmWorld &world, const Supervision &how = {});

/// Handles messages of other launchers until `isOver`, for at most `mostPolls` polls. Returns whether `isOver` holds.
bool pollUntil(launch::Launchers &others, const Patience &patience, int mostPolls, const std::function<bool()> &isOver);

/// After a failure: sends the transfers that this host's ranks waited for, and returns the complete report. The wait is
/// short.
RankFailure settle(launch::Launchers &others, std::vector<Waiting> waiting, const Patience &patience);

/// Waits a short time until the launcher that reports has ended. What started these processes may kill all of them
/// after the first one exits with an error.
void awaitReporter(launch::Launchers &others, const Patience &patience);

} // namespace espalier::rt
