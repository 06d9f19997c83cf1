// Collectives of one group over MPI, one after the other: those of a group run on one queue. Each member reduces its
// part of the range in the order of ranks, as on all back ends; the others' terms of it come into staging, slice by
// slice.
#pragma once

#include "runtime/comm/board.h"
#include "runtime/comm/mpi_messages.h"

#include <array>

namespace espalier::rt {

class MpiGroup {
public:
  /// `tag`: of this group alone among those that share two ranks with it. `memory` outlives its last message.
  MpiGroup(const MpiContext &context, SharedMemory &memory, std::vector<int> members, int self, int tag);

  std::span<const int> members() const { return ranks; }

  /// False where too many are in flight.
  bool start(const CollectiveShape &shape, void *const *from, void *const *to);
  uint64_t startedCount() const { return started; }
  uint64_t doneCount() const { return done; }

  /// Does what can be done now. Throws as MpiMessages does.
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

  // Of the operation at the head: its buffer, what it moves now of each part, and how long parts and slices are.
  size_t buffer = 0;
  int64_t sliceBegin = 0, part = 0, sliceElements = 0, width = 0;
  size_t stagedBytes;      ///< of one member
  char *staging = nullptr; ///< as much for each member
  std::vector<const void *> sources;
};

} // namespace espalier::rt
