// The verdict on the ranks of one host, from what a watcher sees of them. It counts its own looks and no clock: a
// watcher that slept itself has counted nothing.
#pragma once

#include "runtime/status.h"

#include <optional>
#include <span>
#include <vector>

namespace espalier::rt {

/// How long a rank may be silent, and how long those that are to stop may take, in looks of the watcher.
struct Patience {
  int lookMilliseconds = 100;
  int silentLooks = 30;
  int stoppingLooks = 10;
};

/// What is seen of one rank.
struct Sight {
  std::optional<int> status{}; ///< as waitpid says it, once the process has ended
  bool hasLeft = false;        ///< it had done its work before
  uint32_t beats = 0;          ///< grows while the process runs
};

class Watch {
public:
  Watch(int ranks, const Patience &patience) : patience(patience), seen(ranks) {}

  /// The failure of the first rank that has ended ill; where none has and `isLook`, of the first that has been silent
  /// for too long.
  std::optional<Failure> judge(std::span<const Sight> ranks, bool isLook);

private:
  struct Silence {
    uint32_t beats = 0;
    int looks = 0;
  };
  bool isSilent(Silence &silence, const Sight &sight) const;

  Patience patience;
  std::vector<Silence> seen;
};

} // namespace espalier::rt
