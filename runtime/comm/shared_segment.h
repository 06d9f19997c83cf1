// The shared-memory rendezvous of ranks that see each other's memory, threads as well as processes. All shared state is
// plain data in memory that has the same address in every rank. In a collective, each member of the group posts its
// buffers. When all members have posted, each one does its part on its next progress(). The collective ends when all
// parts are done. Counters only grow, so a Round is reused without being cleared: a member posts in it again only after
// its previous collective has ended.
#pragma once

#include "runtime/comm/collectives.h"
#include "runtime/comm/packed_failure.h"
#include "runtime/launch/key_value_store.h"
#include "runtime/launch/rank_status.h"

#include <array>
#include <atomic>
#include <optional>

namespace espalier::rt {

/// Memory that all ranks can access, at the same address in each.
class SharedMemory {
public:
  virtual ~SharedMemory() = default;

  /// Returns zeroed memory, 64-byte aligned, that lives as long as this object. Any rank may call it. Throws
  /// MemoryError.
  virtual void *take(size_t bytes) = 0;
};

/// The state of one collective of a group.
struct alignas(64) Round {
  std::atomic<uint64_t> arrived{0}, finished{0};
  Post *posts = nullptr; ///< indexed by member
};

/// The members of a group on one queue, with a ring of their in-flight collectives.
struct Group {
  Group *next = nullptr; ///< next in the list SharedSegment::groups
  uint32_t queue = 0;
  int size = 0;
  int *members = nullptr;
  std::array<Round, maxInFlight> rounds;

  std::span<const int> ranks() const { return {members, static_cast<size_t>(size)}; }
};

/// The state of one transfer on a channel: both ends post, and one of them copies.
struct alignas(64) ChannelTransfer {
  std::atomic<uint64_t> sent{0}, received{0}, claimed{0}, done{0};
  const void *data = nullptr;
  void *place = nullptr;
  size_t sendBytes = 0, receiveBytes = 0;
};

/// A channel from one rank to another, with a ring of its in-flight transfers.
struct Channel {
  Channel *next = nullptr;
  int from = 0, to = 0;
  uint32_t number = 0;
  std::array<ChannelTransfer, maxInFlight> transfers;
};

/// The futex that wakes one rank.
struct alignas(64) Bell {
  std::atomic<uint32_t> rings{0}, sleepers{0};
};

/// The first failure of the run.
struct FailureRecord {
  std::atomic<bool> isClaimed{false}, isWritten{false};
  PackedFailure failure;
};

/// The shared state of all ranks.
struct SharedSegment {
  /// Makes a segment as the first allocation in `memory`. `isOneProcess` selects the cheaper futex of one process.
  static SharedSegment *make(int ranks, SharedMemory &memory, bool isOneProcess);

  /// Wakes one rank, or several.
  void ring(int rank);
  void ringAll(std::span<const int> members);
  /// Sleeps until `rank` is woken, one second at most. Returns at once if the rank was woken after `seen` was read.
  void sleep(int rank, uint32_t seen);

  /// Stops all ranks. The first failure reported is kept.
  void abort(const Failure &failure) noexcept;
  std::optional<Failure> failure() const;

  /// Returns the group or channel and makes it if needed. Throws RankStopped after an abort.
  Group *findGroup(std::span<const int> members, uint32_t queue, SharedMemory &memory);
  Channel *findChannel(int from, int to, uint32_t number, SharedMemory &memory);

  int ranks = 0;
  bool isOneProcess = true;
  std::atomic<bool> isStopped{false};
  std::atomic<bool> isReported{false}; ///< some process reports the failure to the user
  std::atomic<bool> isLoading{false};  ///< a spin lock; groups and channels are accessed only while it is held
  Group *groups = nullptr;
  Channel *channels = nullptr;
  Bell *bells = nullptr;          ///< indexed by rank
  RankStatus *statuses = nullptr; ///< indexed by rank
  KeyValueStore *keyValues = nullptr;
  FailureRecord first;
};

} // namespace espalier::rt
