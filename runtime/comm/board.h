// The board where ranks meet that see each other's memory, threads as well as processes: all that they share, as plain
// data in memory that has the same address for all of them. A collective is a round on its group: every member posts
// what it brings; when all have arrived, each one does its own part when it makes progress, and the round is over when
// all have finished. Counters only grow, so a round's place is used anew without being cleared: a member posts there
// again only after the round before is over.
#pragma once

#include "runtime/comm/collectives.h"
#include "runtime/comm/packed_failure.h"
#include "runtime/launch/notices.h"
#include "runtime/launch/status_page.h"

#include <array>
#include <atomic>
#include <optional>

namespace espalier::rt {

/// Where the board and what ranks allocate lies.
class SharedMemory {
public:
  virtual ~SharedMemory() = default;

  /// Zeroed memory at a multiple of 64 bytes, there as long as this. Any rank may call it. Throws MemoryError.
  virtual void *take(size_t bytes) = 0;
};

struct alignas(64) Round {
  std::atomic<uint64_t> arrived{0}, finished{0};
  Post *posts = nullptr; ///< by member
};

struct Group {
  Group *next = nullptr; ///< in the order of Board::groups
  uint32_t queue = 0;
  int size = 0;
  int *members = nullptr;
  std::array<Round, maxInFlight> rounds;

  std::span<const int> ranks() const { return {members, static_cast<size_t>(size)}; }
};

/// One transfer on a line: both ends post, one of them copies.
struct alignas(64) LineTransfer {
  std::atomic<uint64_t> sent{0}, received{0}, claimed{0}, done{0};
  const void *data = nullptr;
  void *place = nullptr;
  size_t sendBytes = 0, receiveBytes = 0;
};

struct Line {
  Line *next = nullptr;
  int from = 0, to = 0;
  uint32_t number = 0;
  std::array<LineTransfer, maxInFlight> transfers;
};

/// What wakes one rank.
struct alignas(64) Bell {
  std::atomic<uint32_t> rings{0}, sleepers{0};
};

/// The first failure.
struct FailureRecord {
  std::atomic<bool> isClaimed{false}, isWritten{false};
  PackedFailure failure;
};

struct Board {
  /// Makes a board in `memory`, of which it is the first piece taken. `isOneProcess`: waking is cheaper then.
  static Board *make(int ranks, SharedMemory &memory, bool isOneProcess);

  void ring(int rank);
  void ringAll(std::span<const int> members);
  /// Sleeps until `rank` is rung for, unless that was since `seen`, for a second at most.
  void sleep(int rank, uint32_t seen);

  void abort(const Failure &failure) noexcept;
  std::optional<Failure> failure() const;

  /// The group or line, made if there is none; throws RankStopped after an abort.
  Group *findGroup(std::span<const int> members, uint32_t queue, SharedMemory &memory);
  Line *findLine(int from, int to, uint32_t number, SharedMemory &memory);

  int ranks = 0;
  bool isOneProcess = true;
  std::atomic<bool> isStopped{false};
  std::atomic<bool> isTold{false};    ///< some process says to people why the ranks stopped
  std::atomic<bool> isLoading{false}; ///< a lock of the lists, which are only read while it is held
  Group *groups = nullptr;
  Line *lines = nullptr;
  Bell *bells = nullptr;       ///< by rank
  StatusPage *pages = nullptr; ///< by rank
  Notices *notices = nullptr;
  FailureRecord first;
};

} // namespace espalier::rt
