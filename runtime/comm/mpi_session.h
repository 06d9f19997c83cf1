// What a process does over MPI besides moving operands: it begins, agrees on groups, hears of failures, and ends.
#pragma once

#include "runtime/comm/mpi.h"
#include "runtime/comm/mpi_messages.h"
#include "runtime/comm/packed_failure.h"
#include "runtime/comm/process_memory.h"

#include <deque>
#include <list>

namespace espalier::rt {

struct MpiWorld::Session {
  explicit Session(const World *host);
  ~Session();

  /// The tag of a group, the same for all its members and for no other group of any two of them. Its first member
  /// numbers it, so nobody waits for a rank above. Throws RankStopped after an abort.
  int tagOf(std::span<const int> members, uint32_t queue);
  /// The tag of a line.
  int tagOfLine(uint32_t line) const;

  /// Whether any rank has failed, as far as is known here.
  bool isStopped();
  void abort(const Failure &failure) noexcept;

  const World *const host; ///< null for none
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
      announcements;                      ///< of groups numbered here, until they are through
  std::deque<std::vector<int>> announced; ///< of groups numbered elsewhere
  PackedFailure heard, told;
  MpiMessages news; ///< into `heard`
};

} // namespace espalier::rt
