// Ranks as processes of one host. The shared memory is mapped at the same address in all processes, so they read each
// other's memory as threads do. Forked processes inherit the mapping. Separately started processes use one address that
// is free in every process.
#pragma once

#include "runtime/comm/world.h"

namespace espalier::rt {

/// The shared state of ranks that are processes, made before they are forked.
class ShmWorld final : public World {
public:
  /// `bytes` is the memory that all ranks together allocate. Only address space is reserved; pages are taken on first
  /// touch. Rank i here is rank `first` + i of the run. Throws MemoryError.
  ShmWorld(int ranks, size_t bytes, int first = 0);

  /// Makes a world that separately started processes join by its file. Throws MemoryError.
  static std::unique_ptr<ShmWorld> openForOthers(int ranks, size_t bytes);
  /// Joins the world that openForOthers made in another process. Takes ownership of `file`. Throws MemoryError.
  static std::unique_ptr<ShmWorld> join(int file);
  /// Returns the file that other processes need to join a world made by openForOthers.
  int file() const;

  int firstRank() const { return first; }

  /// Returns true to the first process that asks. This process reports the failure to the user.
  bool claimReport() { return !segment->isReported.exchange(true, std::memory_order_acq_rel); }

private:
  class FileMemory;
  ShmWorld(int ranks, std::unique_ptr<FileMemory> memory);
  explicit ShmWorld(std::unique_ptr<FileMemory> memory);

  int first = 0;
};

} // namespace espalier::rt
