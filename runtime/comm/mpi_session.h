// MPI initialization and shutdown, the agreement on groups, and the broadcast of failures.
#pragma once

#include "runtime/comm/mpi.h"
#include "runtime/comm/mpi_messages.h"
#include "runtime/comm/packed_failure.h"
#include "runtime/comm/process_memory.h"

#include <deque>
#include <list>

namespace espalier::rt {

/// The MPI state of a process.
struct MpiWorld::Session {
  explicit Session(const World *host);
  ~Session();

  /// Returns the tag of a group: the same for all its members, and different for all other groups that share two
  /// members. The first member chooses the tag, so no rank waits for a higher rank. Throws RankStopped after an abort.
  int tagOf(std::span<const int> members, uint32_t queue);
  /// Returns the tag of a channel.
  int tagOfChannel(uint32_t channel) const;

  /// Returns whether this rank knows of a failure on any rank.
  bool isStopped();
  void abort(const Failure &failure) noexcept;

  const World *const host; ///< may be null
  MpiLibrary library;
  MpiContext context;
  int rank = 0, ranks = 0;
  std::optional<Failure> first;
  ProcessMemory memory;

private:
  int numberGroup(std::span<const int> members, uint32_t queue);
  int askNumber(std::span<const int> members, uint32_t queue);
  void listen();
  bool finish(MpiMessages &messages);

  int numbered = 0;
  std::list<std::pair<std::vector<int>, MpiMessages>>
      announcements;                      ///< of groups that this rank numbered; erased when sent
  std::deque<std::vector<int>> announced; ///< received announcements of groups that other ranks numbered
  PackedFailure heard, reported;
  MpiMessages news; ///< receives into `heard`
};

} // namespace espalier::rt
