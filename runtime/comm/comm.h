// How ranks talk: operations are started, moved on by whoever has time, and asked for; nothing blocks. One interface
// for threads, processes of one host, MPI and NCCL. Reductions add the members' values in the order of their global
// ranks, in f32, and round once to the stored type: the bits do not depend on timing, and are equal on every back end
// that runs these algorithms.
#pragma once

#include "runtime/plan.pb.h"
#include "runtime/status.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace espalier::rt {

/// Bytes of one element of `type`.
size_t elementBytes(pb::DataType type);

/// What the n members of a group do together; the same for all of them. Parts are equal, elements / n each, in the
/// order of the members' ranks. With `elements` of one buffer:
///
///     kind            from           to             may lie in place
///     ALL_REDUCE      elements       elements       from = to
///     ALL_GATHER      elements / n   elements       from = own part of to
///     REDUCE_SCATTER  elements       elements / n   to = own part of from
///     ALL_TO_ALL      elements       elements       no: part i of member j's `from` becomes part j of member i's `to`
///     SHIFT           elements       elements       no: member i's `from` becomes the `to` of member (i + shift) mod n
struct CollectiveShape {
  pb::Transfer::Kind kind = pb::Transfer::ALL_REDUCE;
  pb::Reduction reduction = pb::SUM;
  pb::DataType type = pb::F32;
  std::vector<int64_t> elements; ///< per buffer: of its larger side; a multiple of n where there are parts
  int32_t shift = 0;             ///< of SHIFT; may be negative

  bool operator==(const CollectiveShape &) const = default;
};

enum class Progress { Pending, Done, Stopped };

/// An operation in flight. A plain value: no operation allocates.
struct Ticket {
  enum Kind : uint8_t { None, Collective, Send, Receive } kind = None;
  uint32_t channel = 0;  ///< group or link
  uint64_t sequence = 0; ///< how many were started on it before
};

/// At most this many operations in flight on one group or one line between two ranks; the verifier counts.
constexpr int maxInFlight = 64;

/// One rank's end. All members of a group start the same collectives in the same order; the n-th send on a line from
/// one rank to another meets the n-th receive. Used by one thread at a time.
class Communicator {
public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  /// Zeroed memory at a multiple of 64 bytes that operations can read and write, there as long as what all ranks share.
  /// Called while loading. Threads can use any other memory too; operands of processes must lie in such memory. Throws
  /// MemoryError.
  virtual std::byte *allocate(size_t bytes) = 0;

  /// Makes this rank a member of a group given by its global ranks in ascending order and by the queue that its
  /// operations run on: equal members on two queues are two groups. Returns the group's number on this rank, the same
  /// one when asked again. Called while loading, by all members; may allocate.
  virtual uint32_t joinGroup(std::span<const int> members, uint32_t queue) = 0;

  /// Makes a line to or from `peer` usable and returns the link's number on this rank, the same one when asked again.
  /// Lines between two ranks have an order each, and so has each direction. Called while loading; may allocate.
  virtual uint32_t openSend(int peer, uint32_t line) = 0;
  virtual uint32_t openReceive(int peer, uint32_t line) = 0;

  /// Starts a collective: `from` and `to` have one address per buffer of the shape. The memory stays untouched until
  /// the ticket is Done, or, after an abort, until all ranks have seen that they are Stopped; shape and addresses are
  /// copied.
  virtual Ticket startCollective(uint32_t group, const CollectiveShape &shape, void *const *from, void *const *to) = 0;
  virtual Ticket startSend(uint32_t link, const void *data, size_t bytes) = 0;
  virtual Ticket startReceive(uint32_t link, void *data, size_t bytes) = 0;

  /// Does what can be done now, for all operations of this rank.
  virtual void progress() = 0;

  /// Does what can be done now for this operation. Stopped after an abort by any rank.
  virtual Progress poll(Ticket &ticket) = 0;

  /// A number that changes whenever a poll of this rank may have something new.
  virtual uint32_t epoch() const = 0;

  /// Sleeps until the epoch differs from `seen`; now and then it returns earlier.
  virtual void sleep(uint32_t seen) = 0;

  /// Stops all ranks; the first failure reported is the one kept.
  virtual void abort(const Failure &failure) = 0;

  /// Makes progress with everything until the ticket is done: `spins` times at once, then sleeping in between. Throws
  /// RankStopped after an abort.
  void wait(Ticket &ticket, int spins);
};

} // namespace espalier::rt
