// The collectives of one group over MPI. They run one after the other, because a group belongs to one queue. Each
// member reduces its shard in the order of ranks, as with every communicator; the other members' terms arrive in a
// staging buffer, slice by slice.
#pragma once

#include "runtime/comm/mpi_messages.h"
#include "runtime/comm/shared_segment.h"

#include <array>

namespace espalier::rt {

/// One rank's part in the collectives of one group.
class MpiGroup {
public:
  /// No other group that shares two ranks with this one may have the same `tag`. `memory` must outlive the last
  /// message.
  MpiGroup(const MpiContext &context, SharedMemory &memory, std::vector<int> members, int self, int tag);

  std::span<const int> members() const { return ranks; }

  /// Returns false if too many collectives are in flight.
  bool start(const CollectiveShape &shape, void *const *from, void *const *to);
  uint64_t startedCount() const { return started; }
  uint64_t doneCount() const { return done; }

  /// Makes progress without blocking. Throws as MpiMessages does.
  void advance();

private:
  struct Operation {
    CollectiveShape shape;
    std::vector<void *> from, to;
  };
  enum class Phase { Begin, Parts, Results };
  /// Elements of one buffer.
  struct Range {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };

  const Operation &head() const { return operations[done % maxInFlight]; }
  bool isReduction() const;
  void step();
  void beginSlice();
  void endSlice();
  void moveParts();
  void shift();
  void reduceSlice();
  void shareResults();
  Range slice(int64_t member) const;
  char *from(int64_t element) const;
  char *to(int64_t element) const;
  void send(int64_t member, const char *place, Range range);
  void receive(int64_t member, char *place, Range range);
  void keep(int64_t toElement, int64_t fromElement, int64_t count);

  std::vector<int> ranks;
  int index, tag;
  MpiMessages messages;
  std::array<Operation, maxInFlight> operations;
  uint64_t started = 0, done = 0;
  Phase phase = Phase::Begin;

  // The state of the first in-flight collective: its buffer, its slice of each shard, and the sizes of shards and
  // slices.
  size_t buffer = 0;
  int64_t sliceBegin = 0, part = 0, sliceElements = 0, width = 0;
  size_t stagedBytes;      ///< per member
  char *staging = nullptr; ///< [members, stagedBytes]
  std::vector<const void *> sources;
};

} // namespace espalier::rt
