// Ranks as processes of one host: what they share is mapped at the same address in all of them, so they read each
// other's memory as threads do. Forked processes inherit the mapping; those that were started apart take one address
// that is free in every process.
#pragma once

#include "runtime/comm/world.h"

namespace espalier::rt {

/// The shared side of ranks that are processes, made before they are forked.
class ShmWorld final : public World {
public:
  /// `bytes`: what all ranks together allocate. Takes addresses only; memory is taken where it is first touched. Rank i
  /// here is rank `first` + i of the run. Throws MemoryError.
  ShmWorld(int ranks, size_t bytes, int first = 0);

  /// The same for processes that were started apart: they join it by the memory's file. Throws MemoryError.
  static std::unique_ptr<ShmWorld> openForOthers(int ranks, size_t bytes);
  /// What openForOthers made in another process; `file` is this one's from now on. Throws MemoryError.
  static std::unique_ptr<ShmWorld> join(int file);
  /// Of openForOthers' world: to be given to the other processes.
  int file() const;

  int firstRank() const { return first; }

  /// True for one process of all, the first that asks: it tells people of a failure.
  bool claimTelling() { return !board->isTold.exchange(true, std::memory_order_acq_rel); }

private:
  class FileMemory;
  ShmWorld(int ranks, std::unique_ptr<FileMemory> memory);
  explicit ShmWorld(std::unique_ptr<FileMemory> memory);

  int first = 0;
};

} // namespace espalier::rt
