// Queues on the CPU: first-in first-out lists of flights. The foremost one of each list is on its way, the others wait,
// so that a flight may read what an earlier one of its queue wrote.
#pragma once

#include "runtime/device/device.h"

#include <span>
#include <vector>

namespace espalier::rt {

/// One rank's lists. Driven by the rank's thread: between instructions, and in waits.
class FlightLists {
public:
  FlightLists(Communicator &communicator, int spins) : communicator(communicator), spins(spins) {}

  uint32_t add(const TransferShape &transfer);

  /// Puts a flight at the end of its queue's list. Allocates only where the list is longer than ever before. The
  /// ticket's number counts the flights of its queue.
  FlightTicket start(uint32_t transfer, std::span<void *const> from, std::span<void *const> to);

  /// Begins and ends what can begin and end now. Throws RankStopped after an abort.
  void progress();

  bool hasEnded(FlightTicket ticket) const { return lists[ticket.queue].ended > ticket.number; }

  /// Drives all lists until the flight has ended.
  void wait(FlightTicket ticket);

private:
  struct Transfer {
    TransferShape shape;
    uint32_t channel = 0; ///< group or link of the communicator
    uint32_t buffers = 0; ///< addresses of a flight, `from` before `to`
  };
  /// A ring: flight n lies at place n % capacity.
  struct List {
    uint64_t started = 0, ended = 0;
    bool isBegun = false; ///< the foremost
    Ticket ticket;        ///< its operation
    size_t width = 0;     ///< most addresses that a flight has
    std::vector<uint32_t> transfers;
    std::vector<void *> addresses;
  };

  void grow(List &list);
  void drive(List &list);
  /// Gives the foremost flight to the communicator, or does it at once; whether it has ended by that.
  bool begin(List &list);

  Communicator &communicator;
  const int spins;
  std::vector<Transfer> transfers;
  std::vector<List> lists;
  uint64_t open = 0; ///< flights that have not ended
};

} // namespace espalier::rt
