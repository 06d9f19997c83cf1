// Ranks as processes of one host, forked from the one that made their world: what they share is mapped at the same
// address in all of them, so they read each other's memory as threads do.
#pragma once

#include "runtime/comm/world.h"

namespace espalier::rt {

/// The shared side of ranks that are processes, made before they are forked.
class ShmWorld final : public World {
public:
  /// `bytes`: what all ranks together allocate. Takes addresses only; memory is taken where it is first touched. Throws
  /// MemoryError.
  ShmWorld(int ranks, size_t bytes);

  /// Says that `rank` lives: its count grows. By a thread of its own, as a rank may compute for long.
  void beat(int rank) { board->bells[rank].beats.fetch_add(1, std::memory_order_relaxed); }
  uint32_t beats(int rank) const { return board->bells[rank].beats.load(std::memory_order_relaxed); }

  /// Says that `rank` has done its work, so that nobody misses it when it ends.
  void leave(int rank) { board->bells[rank].hasLeft.store(true, std::memory_order_release); }
  bool hasLeft(int rank) const { return board->bells[rank].hasLeft.load(std::memory_order_acquire); }
};

} // namespace espalier::rt
