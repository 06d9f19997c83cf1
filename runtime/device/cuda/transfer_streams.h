// Transfers on a GPU: one stream per queue, synchronized with the compute stream by events. NCCL moves data between
// ranks.
#pragma once

#include "runtime/device/cuda/memory.h"
#include "runtime/device/cuda/nccl.h"
#include "runtime/device/cuda/queue.h"
#include "runtime/device/device.h"

#include <deque>
#include <vector>

namespace espalier::rt::cuda {

/// The in-flight transfers of one rank.
class TransferStreams {
public:
  /// `compute` is queue 0. `groups` is null for a plan of one rank.
  TransferStreams(Queue &compute, const Memory &memory, const HostMemory &hostMemory, const RankHost &host,
                  std::unique_ptr<NcclGroups> groups);

  /// Registers a transfer and returns its number. Throws PlanError if it needs a communicator that the plan does not
  /// list.
  uint32_t add(const TransferShape &transfer);

  /// Enqueues a transfer after the work issued so far on the compute stream and after earlier transfers of its queue.
  /// The ticket's number identifies an event, which is reused after wait().
  TransferTicket start(const TransferStart &request);
  /// Makes later work of the compute stream wait for the transfer.
  void wait(TransferTicket ticket);

  /// Returns whether a transfer is known to have ended.
  bool hasEnded(TransferTicket ticket) const;

  /// Throws RankStopped if another rank has failed, CallError if NCCL has failed.
  void check();
  /// Leaves the communicators together with the other ranks. All transfers must have ended.
  void leave();
  /// Aborts transfers that wait for other ranks.
  void abort() noexcept;

private:
  struct Transfer {
    TransferShape shape;
    std::optional<uint32_t> communicator; ///< if the transfer needs other ranks
    std::optional<uint32_t> hostGroup;    ///< for a barrier: a transfer without buffers, done by the hosts
  };

  bool needsOthers(const TransferShape &transfer) const;
  NcclGroup groupOf(const TransferShape &transfer) const;
  void move(const Transfer &transfer, const TransferStart &request, Queue &queue);
  CUdeviceptr at(Place place) const;
  void copy(Queue &queue, Place from, Place to, size_t bytes);

  Queue &compute;
  const Memory &memory;
  const HostMemory &hostMemory;
  const RankHost host;
  std::unique_ptr<NcclGroups> groups;
  std::vector<Transfer> transfers;
  Ticket lastBarrier;           ///< the last barrier
  std::deque<Queue> queues;     ///< the plan's queues except the compute stream
  Event issued;                 ///< recorded on the compute stream before a transfer
  std::vector<Event> ends;      ///< one per transfer in flight
  std::vector<uint32_t> isFree; ///< indices of events in `ends` that no transfer uses
  std::vector<CUdeviceptr> from, to;
};

} // namespace espalier::rt::cuda
