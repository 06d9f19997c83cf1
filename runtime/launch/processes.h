// Ranks as processes of this host: forked, watched, ended. Several processes may each do so with a part of the ranks.
#pragma once

#include "runtime/comm/shm.h"
#include "runtime/launch/launchers.h"
#include "runtime/launch/watch.h"

#include <climits>
#include <functional>
#include <sys/types.h>

namespace espalier::rt {

/// The process of one rank, a child of this one.
struct Process {
  int rank = -1; ///< in its world
  pid_t id = -1;
  int handle = -1;           ///< of the kernel, readable once the process has ended
  std::optional<int> status; ///< as waitpid says it, once it has ended
};

/// A process that has other ranks of the same world.
struct Neighbour {
  std::vector<int> ranks;
  int handle = -1; ///< of the kernel, readable once that process has ended
};

/// Forks a process for each of `ranks` of `world`, which runs body(rank), gives signs of life meanwhile, and ends with
/// what it returns; 0 says that it has done its work. An exception is the rank's failure. The processes die with the
/// thread that calls this; no other thread may hold a lock then, as nobody would release it in them. Throws MemoryError
/// where the system refuses a process; those that were forked have ended then.
std::vector<Process> spawn(ShmWorld &world, std::span<const int> ranks, const std::function<int(int rank)> &body);
/// The same for all ranks.
std::vector<Process> spawn(ShmWorld &world, const std::function<int(int rank)> &body);

/// How ranks are watched.
struct Supervision {
  Patience patience = {};
  std::vector<Neighbour> neighbours = {};
  launch::Launchers *others = nullptr; ///< of other hosts; null for none
  int meetingLooks = INT_MAX;          ///< for which `others` may take to be complete; then these ranks stop
  /// The signal that asked this process to end, 0 for none: as long as `others` are not complete, these ranks, which
  /// have not begun, then stop at once.
  std::function<int()> endSignal = [] { return 0; };
  /// Completes what was seen of a rank, given by its number in the world, that could not say itself where it stood.
  std::function<void(int rank, Failure &failure)> describe = [](int, Failure &) {};
};

/// Waits until all have ended. The first that ends ill or is silent stops all ranks of `world`, and so does a neighbour
/// that ends before its ranks have done their work; who was silent is killed, as it will not see the stop, and so is
/// what has not ended soon after it. Returns the first failure: what a rank reported, or else what was seen of one.
/// With `others` a failure here stops their ranks too, and one there these.
std::optional<Failure> supervise(std::vector<Process> &processes, ShmWorld &world, const Supervision &how = {});

/// Hears what others say until `isOver`, for so many looks at most; whether it is.
bool takeTurns(launch::Launchers &others, const Patience &patience, int mostLooks, const std::function<bool()> &isOver);

/// After a failure: says what this host's ranks waited for, and hears what the others' did. Not for long.
RankFailure settle(launch::Launchers &others, std::vector<Waiting> waiting, const Patience &patience);

/// Until the launcher that speaks has ended, if not for long: what started these processes may end all others when one
/// has ended ill.
void awaitSpeaker(launch::Launchers &others, const Patience &patience);

} // namespace espalier::rt
