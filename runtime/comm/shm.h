// Ranks as processes of one host, forked from the one that made their world: what they share is mapped at the same
// address in all of them, so they read each other's memory as threads do.
#pragma once

#include "runtime/comm/world.h"

namespace espalier::rt {

/// The shared side of ranks that are processes, made before they are forked.
class ShmWorld final : public World {
public:
  /// `bytes`: what all ranks together allocate. Takes addresses only; memory is taken where it is first touched. Rank i
  /// here is rank `first` + i of the run. Throws MemoryError.
  ShmWorld(int ranks, size_t bytes, int first = 0);

  int firstRank() const { return first; }

private:
  int first;
};

} // namespace espalier::rt
