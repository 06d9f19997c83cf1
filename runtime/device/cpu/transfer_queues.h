// The communication queues of the CPU: FIFO lists of in-flight transfers. Only the first transfer of each list is
// started; the others wait, so a transfer may read what an earlier transfer of its queue wrote.
#pragma once

#include "runtime/device/device.h"

#include <span>
#include <vector>

namespace espalier::rt {

/// The queues of one rank. The rank's thread advances them between instructions and while it waits.
class TransferQueues {
public:
  TransferQueues(Communicator &communicator, int spins) : communicator(communicator), spins(spins) {}

  /// Registers a transfer and returns its number.
  uint32_t add(const TransferShape &transfer);

  /// Appends a transfer to its queue. Allocates only if the queue is longer than ever before. The ticket's number
  /// counts the transfers started on the queue.
  TransferTicket start(uint32_t transfer, std::span<void *const> from, std::span<void *const> to);

  /// Starts and completes transfers as far as possible without blocking. Throws RankStopped after an abort.
  void progress();

  bool hasEnded(TransferTicket ticket) const { return lists[ticket.queue].ended > ticket.number; }

  /// Advances all queues until the transfer has ended.
  void wait(TransferTicket ticket);

private:
  struct Transfer {
    TransferShape shape;
    uint32_t channel = 0; ///< group or channel of the communicator
    uint32_t buffers = 0; ///< addresses per start, `from` before `to`
  };
  /// A ring buffer: transfer n lies in slot n % capacity.
  struct List {
    uint64_t started = 0, ended = 0;
    bool isBegun = false; ///< whether the first transfer has started
    Ticket ticket;        ///< the operation of the first transfer
    size_t width = 0;     ///< the most addresses of any transfer
    std::vector<uint32_t> transfers;
    std::vector<void *> addresses;
  };

  void grow(List &list);
  void drive(List &list);
  /// Starts the first transfer on the communicator, or does it at once. Returns whether it has ended.
  bool begin(List &list);

  Communicator &communicator;
  const int spins;
  std::vector<Transfer> transfers;
  std::vector<List> lists;
  uint64_t open = 0; ///< transfers that have not ended
};

} // namespace espalier::rt
