// Transfers on a GPU: a stream per queue, tied to the compute stream by events. Copies only, as long as a plan has one
// rank.
#pragma once

#include "runtime/device/cuda/memory.h"
#include "runtime/device/cuda/queue.h"
#include "runtime/device/device.h"

#include <deque>
#include <vector>

namespace espalier::rt::cuda {

class Flights {
public:
  /// `compute` is queue 0.
  Flights(Queue &compute, const Memory &memory, const HostMemory &host);

  /// Throws PlanError for what needs other ranks.
  uint32_t add(const TransferShape &transfer);

  /// Enqueues a flight behind the work issued so far on the compute stream and behind the earlier flights of its own.
  /// The ticket's number is that of an event, which is free again after the wait.
  FlightTicket start(const FlightStart &flight);
  /// Holds back what is enqueued later on the compute stream.
  void wait(FlightTicket ticket);

private:
  void copy(Queue &queue, Place from, Place to, size_t bytes);

  Queue &compute;
  const Memory &memory;
  const HostMemory &host;
  std::vector<TransferShape> transfers;
  std::deque<Queue> queues;     ///< those of the plan but the compute stream
  Event issued;                 ///< the compute stream's work before a flight
  std::vector<Event> ends;      ///< of flights
  std::vector<uint32_t> isFree; ///< indices of those that no open flight uses
};

} // namespace espalier::rt::cuda
