// Communication between ranks. Operations are started, advanced by progress(), and polled; none of these calls blocks.
// One interface covers threads, processes of one host, MPI and NCCL. Reductions add the members' values in the order of
// their global ranks, in f32, and round once to the stored type. The bits therefore do not depend on timing and are
// equal on every communicator that runs these algorithms.
#pragma once

#include "format/plan.pb.h"
#include "runtime/launch/rank_status.h"
#include "runtime/status.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace espalier::rt {

/// Bytes of one element of `type`.
size_t elementBytes(pb::DataType type);

/// A collective of a group of n members, the same for all of them. Shards are equal, elements / n each, in the order of
/// the members' ranks. With `elements` of one buffer:
///
///     kind            from           to             may lie in place
///     ALL_REDUCE      elements       elements       from = to
///     ALL_GATHER      elements / n   elements       from = own shard of to
///     REDUCE_SCATTER  elements       elements / n   to = own shard of from
///     ALL_TO_ALL      elements       elements       no: shard i of member j becomes shard j of member i
///     SHIFT           elements       elements       no: member i's `from` becomes the `to` of member (i + shift) mod n
struct CollectiveShape {
  pb::Transfer::Kind kind = pb::Transfer::ALL_REDUCE;
  pb::Reduction reduction = pb::SUM;
  pb::DataType type = pb::F32;
  std::vector<int64_t> elements; ///< per buffer, counted on its larger side; a multiple of n if sharded
  int32_t shift = 0;             ///< for SHIFT only; may be negative

  bool operator==(const CollectiveShape &) const = default;
};

/// The state of an operation. `Stopped`: a rank has called abort().
enum class Progress { Pending, Done, Stopped };

/// An in-flight operation. A plain value, because starting an operation must not allocate.
struct Ticket {
  enum Kind : uint8_t { None, Collective, Send, Receive } kind = None;
  uint32_t channel = 0;  ///< group or link
  uint64_t sequence = 0; ///< number of operations started earlier on the channel
};

/// The most in-flight operations on one group, or on one channel between two ranks. The plan verifier checks this
/// limit.
constexpr int maxInFlight = 64;

/// One rank's endpoint. All members of a group start the same collectives in the same order. The n-th send on a channel
/// from one rank to another matches the n-th receive. Used by one thread at a time.
class Communicator {
public:
  virtual ~Communicator() = default;

  /// Return this rank and the number of ranks.
  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  /// Returns zeroed memory, 64-byte aligned, that operations can read and write and that lives as long as the shared
  /// state. Called while loading. Operands of ranks in separate processes must lie in this memory; threads can use any
  /// memory. Throws MemoryError.
  virtual std::byte *allocate(size_t bytes) = 0;

  /// Makes this rank a member of a group, given by its global ranks in ascending order and by the queue of its
  /// operations. Equal members on two queues are two groups. Returns the group's number on this rank; a second call
  /// returns the same number. Called by all members while loading; may allocate.
  virtual uint32_t joinGroup(std::span<const int> members, uint32_t queue) = 0;

  /// Opens a channel to or from `peer` and returns its number on this rank; a second call returns the same number. Each
  /// direction of each channel has its own order. Called while loading; may allocate.
  virtual uint32_t openSend(int peer, uint32_t channel) = 0;
  virtual uint32_t openReceive(int peer, uint32_t channel) = 0;

  /// Starts a collective. `from` and `to` hold one address per buffer of the shape; shape and addresses are copied. The
  /// caller must not touch the buffers until the ticket is Done, or, after an abort, until all ranks have seen Stopped.
  virtual Ticket startCollective(uint32_t group, const CollectiveShape &shape, void *const *from, void *const *to) = 0;
  /// Starts one transfer on a channel, under the same rules. Both ends must give the same number of bytes.
  virtual Ticket startSend(uint32_t link, const void *data, size_t bytes) = 0;
  virtual Ticket startReceive(uint32_t link, void *data, size_t bytes) = 0;

  /// Advances all operations of this rank as far as possible without blocking.
  virtual void progress() = 0;

  /// Advances this operation as far as possible without blocking. Returns Stopped after an abort by any rank.
  virtual Progress poll(Ticket &ticket) = 0;

  /// Returns a counter that changes whenever a poll of this rank may have a new result.
  virtual uint32_t epoch() const = 0;

  /// Sleeps until the epoch differs from `seen`. May return earlier.
  virtual void sleep(uint32_t seen) = 0;

  /// Stops all ranks. The first failure reported is kept.
  virtual void abort(const Failure &failure) = 0;

  /// Makes progress with all operations until the ticket is done. Polls `spins` times, then sleeps between polls.
  /// Throws RankStopped after an abort.
  void wait(Ticket &ticket, int spins);

  Activity *activity = nullptr; ///< of the thread that uses this object; null: nobody watches it
};

} // namespace espalier::rt
