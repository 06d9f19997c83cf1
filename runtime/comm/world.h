// The shared state of all ranks, independent of the memory that holds it.
#pragma once

#include "runtime/comm/shared_segment.h"

#include <memory>
#include <optional>

namespace espalier::rt {

/// The state that `ranks` communicators share. Outlives them.
class World {
public:
  virtual ~World();
  World(const World &) = delete;
  World &operator=(const World &) = delete;

  int ranks() const { return segment->ranks; }

  /// Makes the communicator of one rank; called at most once per rank.
  std::unique_ptr<Communicator> communicator(int rank);

  /// Returns the status of a rank: its current action and its heartbeat.
  RankStatus &status(int rank) { return segment->statuses[rank]; }
  std::span<RankStatus> statuses() { return {segment->statuses, static_cast<size_t>(segment->ranks)}; }
  const RankStatus &status(int rank) const { return segment->statuses[rank]; }

  /// Returns the key-value entries that ranks post for each other.
  KeyValueStore &keyValues() { return *segment->keyValues; }

  /// Stops all ranks, also those without a communicator yet. The first failure is kept.
  void abort(const Failure &failure) noexcept { segment->abort(failure); }

  /// Returns whether any rank has failed.
  bool isStopped() const { return segment->isStopped.load(std::memory_order_acquire); }

  /// Returns the first failure that any rank reported.
  std::optional<Failure> failure() const { return segment->failure(); }

protected:
  World(int ranks, std::unique_ptr<SharedMemory> memory, bool isOneProcess);
  /// Uses a `segment` that already lies in `memory`.
  World(std::unique_ptr<SharedMemory> memory, SharedSegment *segment);

  std::unique_ptr<SharedMemory> memory;
  SharedSegment *segment; ///< lies in `memory`
};

} // namespace espalier::rt
