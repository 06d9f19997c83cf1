// Ranks as processes of one host: what they share is mapped at the same address in all of them, so they read each
// other's memory as threads do. Forked processes inherit the mapping; those that were started apart take one address
// that is free in every process.
#pragma once

#include "runtime/comm/world.h"

namespace espalier::rt {

/// The shared side of ranks that are processes, made before they are forked.
class ShmWorld final : public World {
public:
  /// `bytes`: what all ranks together allocate. Takes addresses only; memory is taken where it is first touched. Throws
  /// MemoryError.
  ShmWorld(int ranks, size_t bytes);

  /// The same for processes that were started apart: they join it by the memory's file. Throws MemoryError.
  static std::unique_ptr<ShmWorld> openForOthers(int ranks, size_t bytes);
  /// What openForOthers made in another process; `file` is this one's from now on. Throws MemoryError.
  static std::unique_ptr<ShmWorld> join(int file);
  /// Of openForOthers' world: to be given to the other processes.
  int file() const;

  /// Says that `rank` lives: its count grows. By a thread of its own, as a rank may compute for long.
  void beat(int rank) { board->bells[rank].beats.fetch_add(1, std::memory_order_relaxed); }
  uint32_t beats(int rank) const { return board->bells[rank].beats.load(std::memory_order_relaxed); }

  /// Says that `rank` has done its work, so that nobody misses it when it ends.
  void leave(int rank) { board->bells[rank].hasLeft.store(true, std::memory_order_release); }
  bool hasLeft(int rank) const { return board->bells[rank].hasLeft.load(std::memory_order_acquire); }

  /// True for one process of all, the first that asks: it tells people of a failure.
  bool claimTelling() { return !board->isTold.exchange(true, std::memory_order_acq_rel); }

private:
  class FileMemory;
  ShmWorld(int ranks, std::unique_ptr<FileMemory> memory);
  explicit ShmWorld(std::unique_ptr<FileMemory> memory);
};

} // namespace espalier::rt
