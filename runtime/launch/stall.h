// Detects ranks that live but do not go on. Counts polls, not wall time, as Watch does.
#pragma once

#include "runtime/launch/rank_status.h"
#include "runtime/status.h"

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// The time for which nobody may move.
struct StallPatience {
  /// Set by the user: 0 for ever. Unset: a minute, or 20 median steps if they are longer; ten minutes for a device that
  /// has not ended its first step.
  std::optional<double> seconds = 0.0;
  /// After a signal that asks the run to end, this time or two median steps are enough.
  double endSeconds = 5;
  int pollMilliseconds = 100;
};

/// The ranks that a rank waits for, and the name of the value that it expects from them.
struct Awaited {
  std::vector<int> ranks;
  std::string what; ///< "in/3", or "a message of all ranks"
};

/// A rank while nobody moves.
struct StalledRank {
  int rank = -1;        ///< of the run
  double idle = 0;      ///< seconds since it moved
  Awaited awaited = {}; ///< empty if it waits for no rank
  std::string stack;    ///< of its thread if it waits for no rank
  Failure place = {};   ///< its position
};

/// Sets what a rank waits for and its position. `rank` is its number among the ranks of this host.
using StallTeller = std::function<void(int rank, StalledRank &to)>;

/// Judges the progress of the ranks of one host. A thread moves if it works on an entry or, outside of entries, if it
/// computes. A wait for other ranks is no movement. A thread that waits for the reader of its output is not judged.
class StallWatch {
public:
  StallWatch(int ranks, const StallPatience &patience) : patience(patience), seen(static_cast<size_t>(ranks)) {}

  /// Counts one poll. `isAsked` tells whether a signal has asked the run to end; called only if a rank stands.
  void poll(std::span<RankStatus> ranks, const std::function<bool()> &isAsked);
  /// Returns whether no thread of any rank has moved for the time of the patience.
  bool isStalled() const { return hasStalled; }
  /// Returns the first rank whose writer of checkpoints has not moved for that time, although others may move; or -1.
  int stalledWriter() const { return writer; }
  /// Describes a rank: a stalled rank that does not look for what it awaits is asked for its stack.
  bool isLooking(int rank) const { return seen[static_cast<size_t>(rank)][0].blindPolls < mostBlindPolls; }
  /// Returns the seconds since a rank moved.
  double idle(int rank) const;

private:
  struct Seen {
    uint32_t moves = 0, looks = 0;
    uint64_t computeTime = 0;
    int idlePolls = 0, blindPolls = 0;
  };
  /// Ranks that wait look at least every second.
  static constexpr int mostBlindPolls = 15;

  bool hasMoved(Seen &before, const RankStatus &status, const Activity &activity) const;
  double limitOf(const RankStatus &status, const Activity &activity, bool isAsked) const;

  StallPatience patience;
  std::vector<std::array<Seen, 2>> seen; ///< of a rank's main thread and writer
  bool hasStalled = false;
  int writer = -1;
};

/// Returns what is known of ranks that have stalled. `first` is the number of the first rank in the run. Waits up to
/// half a second for stacks.
std::vector<StalledRank> describeStall(std::span<RankStatus> ranks, const StallWatch &watch, int first,
                                       const StallTeller &tell);
/// Returns the failure of stalledWriter().
Failure writerStall(std::span<RankStatus> ranks, const StallWatch &watch, int first, const StallTeller &tell);

/// Returns the failure of the rank that the others wait for, directly or through a chain. `ranks` are all ranks that
/// have not completed; at least one.
Failure blame(std::span<const StalledRank> ranks);

/// Convert ranks to JSON text and back. parseStalled throws nlohmann::json::exception for malformed text.
std::string printStalled(std::span<const StalledRank> ranks);
std::vector<StalledRank> parseStalled(const std::string &text);

} // namespace espalier::rt
