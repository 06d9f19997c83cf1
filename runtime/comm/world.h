// The shared state of all ranks, independent of the memory that holds it.
#pragma once

#include "runtime/comm/board.h"

#include <memory>
#include <optional>

namespace espalier::rt {

/// The state that `ranks` communicators share. Outlives them.
class World {
public:
  virtual ~World();
  World(const World &) = delete;
  World &operator=(const World &) = delete;

  int ranks() const { return board->ranks; }

  /// Makes the communicator of one rank; called at most once per rank.
  std::unique_ptr<Communicator> communicator(int rank);

  /// Returns the status of a rank: its current action and its heartbeat.
  StatusPage &page(int rank) { return board->pages[rank]; }
  const StatusPage &page(int rank) const { return board->pages[rank]; }

  /// Returns the key-value entries that ranks post for each other.
  Notices &notices() { return *board->notices; }

  /// Stops all ranks, also those without a communicator yet. The first failure is kept.
  void abort(const Failure &failure) noexcept { board->abort(failure); }

  /// Returns whether any rank has failed.
  bool isStopped() const { return board->isStopped.load(std::memory_order_acquire); }

  /// Returns the first failure that any rank reported.
  std::optional<Failure> failure() const { return board->failure(); }

protected:
  World(int ranks, std::unique_ptr<SharedMemory> memory, bool isOneProcess);
  /// Uses a `board` that already lies in `memory`.
  World(std::unique_ptr<SharedMemory> memory, Board *board);

  std::unique_ptr<SharedMemory> memory;
  Board *board; ///< lies in `memory`
};

} // namespace espalier::rt
