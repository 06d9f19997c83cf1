// How ranks talk: operations are started and polled, nothing blocks. One interface for threads, MPI
// and NCCL. Reductions add the members' values in the order of their global ranks, in f32, and
// round once to the stored type: the bits do not depend on timing, and are equal on every back end
// that runs these algorithms.
#pragma once

#include "runtime/plan.pb.h"
#include "runtime/status.h"

#include <cstdint>
#include <span>
#include <vector>

namespace espalier::rt {

/// Bytes of one element of `type`.
size_t elementBytes(pb::DataType type);

/// Elements [begin, end) of a range.
struct Share {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

/// Part `index` of `elements` split for `ranks`: ceil(elements / ranks) each, the last ones short
/// or empty. shareOf(10, 4, 2) = [6, 9), shareOf(10, 4, 3) = [9, 10), shareOf(2, 4, 3) is empty.
Share shareOf(int64_t elements, int ranks, int index);

/// What the members of a group do together; the same for all of them. Must outlive the operations
/// started with it.
struct CollectiveShape {
  pb::Collective::Kind kind = pb::Collective::ALL_REDUCE;
  pb::Collective::Reduction reduction = pb::Collective::SUM;
  pb::DataType type = pb::F32;
  std::vector<int64_t> elements; ///< per buffer: elements of the larger side

  bool operator==(const CollectiveShape &) const = default;
};

enum class Progress { Pending, Done, Stopped };

/// An operation in flight. A plain value: no operation allocates.
struct Ticket {
  enum Kind : uint8_t { None, Collective, Send, Receive } kind = None;
  bool worked = false;   ///< this rank's part is done, others may still be at theirs
  uint32_t channel = 0;  ///< group or link
  uint64_t sequence = 0; ///< how many were started on it before
};

/// Streams between two ranks, each with its own order.
enum class Stream : uint8_t { Forward, Backward };

/// At most this many operations in flight on one group or one stream between two ranks; the
/// verifier counts.
constexpr int maxInFlight = 64;

/// One rank's end. All members of a group start the same collectives in the same order; the n-th
/// send on a stream meets the n-th receive. Used by one thread.
class Communicator {
public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  /// Makes this rank a member of a group given by its global ranks in ascending order, and returns
  /// the group's number on this rank. Called while loading; may allocate.
  virtual uint32_t joinGroup(std::span<const int> members) = 0;

  /// Makes a stream to or from `peer` usable. Called while loading; may allocate.
  virtual uint32_t openSend(int peer, Stream stream) = 0;
  virtual uint32_t openReceive(int peer, Stream stream) = 0;

  /// Starts a collective: `from` and `to` have one address per buffer of the shape. The arrays, the
  /// shape and the memory stay untouched until the ticket is Done, or, after an abort, until all
  /// ranks have seen that they are Stopped. plan.proto says which places may coincide.
  virtual Ticket startCollective(uint32_t group, const CollectiveShape &shape, void *const *from, void *const *to) = 0;
  virtual Ticket startSend(uint32_t link, const void *data, size_t bytes) = 0;
  virtual Ticket startReceive(uint32_t link, void *data, size_t bytes) = 0;

  /// Does what can be done now. Stopped after an abort by any rank.
  virtual Progress poll(Ticket &ticket) = 0;

  /// A number that changes whenever a poll of this rank may have something new.
  virtual uint32_t epoch() const = 0;

  /// Sleeps until the epoch differs from `seen`.
  virtual void sleep(uint32_t seen) = 0;

  /// Stops all ranks; the first failure reported is the one kept.
  virtual void abort(const Failure &failure) = 0;

  /// Polls until the ticket is done: `spins` times at once, then sleeping in between. Throws
  /// RankStopped after an abort.
  void wait(Ticket &ticket, int spins);
};

} // namespace espalier::rt
