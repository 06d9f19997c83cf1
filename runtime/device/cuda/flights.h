// Transfers on a GPU: a stream per queue, tied to the compute stream by events. What needs other ranks is NCCL's.
#pragma once

#include "runtime/device/cuda/memory.h"
#include "runtime/device/cuda/nccl.h"
#include "runtime/device/cuda/queue.h"
#include "runtime/device/device.h"

#include <deque>
#include <vector>

namespace espalier::rt::cuda {

class Flights {
public:
  /// `compute` is queue 0. `groups`: none where the plan has one rank.
  Flights(Queue &compute, const Memory &memory, const HostMemory &hostMemory, const RankHost &host,
          std::unique_ptr<NcclGroups> groups);

  /// Throws PlanError for what other ranks take part in and the plan lists no communicator for.
  uint32_t add(const TransferShape &transfer);

  /// Enqueues a flight behind the work issued so far on the compute stream and behind the earlier flights of its own.
  /// The ticket's number is that of an event, which is free again after the wait.
  FlightTicket start(const FlightStart &flight);
  /// Holds back what is enqueued later on the compute stream.
  void wait(FlightTicket ticket);

  bool hasEnded(FlightTicket ticket) const;

  /// Throws RankStopped where another rank has failed, CallError where NCCL has.
  void check();
  /// Once all flights have ended: together with the other ranks.
  void leave();
  /// Ends flights that wait for others.
  void abort() noexcept;

private:
  struct Transfer {
    TransferShape shape;
    std::optional<uint32_t> communicator; ///< of what needs other ranks
    std::optional<uint32_t> hostGroup;    ///< of a meeting: a transfer of nothing, which the hosts do
  };

  bool needsOthers(const TransferShape &transfer) const;
  NcclGroup groupOf(const TransferShape &transfer) const;
  void move(const Transfer &transfer, const FlightStart &flight, Queue &queue);
  CUdeviceptr at(Place place) const;
  void copy(Queue &queue, Place from, Place to, size_t bytes);

  Queue &compute;
  const Memory &memory;
  const HostMemory &hostMemory;
  const RankHost host;
  std::unique_ptr<NcclGroups> groups;
  std::vector<Transfer> transfers;
  Ticket meeting;               ///< the last one
  std::deque<Queue> queues;     ///< those of the plan but the compute stream
  Event issued;                 ///< the compute stream's work before a flight
  std::vector<Event> ends;      ///< of flights
  std::vector<uint32_t> isFree; ///< indices of those that no open flight uses
  std::vector<CUdeviceptr> from, to;
};

} // namespace espalier::rt::cuda
