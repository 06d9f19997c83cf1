// The shared side of all ranks, apart from where it lies.
#pragma once

#include "runtime/comm/board.h"

#include <memory>
#include <optional>

namespace espalier::rt {

/// What `ranks` communicators share. Outlives them.
class World {
public:
  virtual ~World();
  World(const World &) = delete;
  World &operator=(const World &) = delete;

  int ranks() const { return board->ranks; }

  /// The end of one rank; at most one per rank.
  std::unique_ptr<Communicator> communicator(int rank);

  /// Where a rank shows what it does, and that it lives.
  StatusPage &page(int rank) { return board->pages[rank]; }
  const StatusPage &page(int rank) const { return board->pages[rank]; }

  Notices &notices() { return *board->notices; }

  /// Stops all ranks, also those that have no end yet; the first failure is the one kept.
  void abort(const Failure &failure) noexcept { board->abort(failure); }

  /// Whether any rank has failed.
  bool isStopped() const { return board->isStopped.load(std::memory_order_acquire); }

  /// The first failure reported by any rank.
  std::optional<Failure> failure() const { return board->failure(); }

protected:
  World(int ranks, std::unique_ptr<SharedMemory> memory, bool isOneProcess);
  /// `board`: one that lies in `memory` already.
  World(std::unique_ptr<SharedMemory> memory, Board *board);

  std::unique_ptr<SharedMemory> memory;
  Board *board; ///< lies in `memory`
};

} // namespace espalier::rt
