// Detects failed ranks of one host. Timeouts count polls, not wall time, so that a suspended supervisor does not expire
// them.
#pragma once

#include "runtime/status.h"

#include <optional>
#include <span>
#include <vector>

namespace espalier::rt {

/// The timeouts for silent ranks and for ranks that must stop, in polls.
struct Patience {
  int pollMilliseconds = 100;
  int silentPolls = 30;
  int stoppingPolls = 10;
};

/// The observed state of one rank.
struct Sight {
  std::optional<int> status{}; ///< the status from waitpid, once the process has ended
  bool hasLeft = false;        ///< the rank completed before its process ended
  uint32_t beats = 0;          ///< heartbeat counter
};

/// A process that supervises other ranks of the same world.
struct Neighbour {
  std::vector<int> ranks;
  int handle = -1; ///< readable once that process has ended
};

/// Judges the ranks of one host.
class Watch {
public:
  /// Watches `ranks` ranks with the given timeouts.
  Watch(int ranks, const Patience &patience) : patience(patience), seen(ranks) {}

  /// Returns the failure of the first rank whose process ended with an error. If there is none and `isPoll` is set,
  /// returns the failure of the first rank that sent no heartbeat for too long.
  std::optional<Failure> judge(std::span<const Sight> ranks, bool isPoll);

private:
  struct Silence {
    uint32_t beats = 0;
    int polls = 0;
  };
  bool isSilent(Silence &silence, const Sight &sight) const;

  Patience patience;
  std::vector<Silence> seen;
};

} // namespace espalier::rt
