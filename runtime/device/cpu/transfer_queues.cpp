#include "runtime/device/cpu/transfer_queues.h"

#include <algorithm>
#include <cstring>

namespace espalier::rt {

uint32_t TransferQueues::add(const TransferShape &shape) {
  Transfer made = {.shape = shape};
  size_t sides = 2;
  switch (shape.kind) {
  case pb::Transfer::SEND:
    made.channel = communicator.openSend(shape.peer, shape.channel);
    sides = 1;
    break;
  case pb::Transfer::RECEIVE:
    made.channel = communicator.openReceive(shape.peer, shape.channel);
    sides = 1;
    break;
  case pb::Transfer::COPY:
    break;
  default:
    made.channel = communicator.joinGroup(shape.members, shape.queue);
  }
  made.buffers = static_cast<uint32_t>(shape.bytes.size() * sides);
  lists.resize(std::max<size_t>(lists.size(), shape.queue + 1));
  List &list = lists[shape.queue];
  list.width = std::max<size_t>(list.width, made.buffers);
  transfers.push_back(std::move(made));
  return transfers.size() - 1;
}

void TransferQueues::grow(List &list) {
  // Transfers keep their order, but their ring slots change.
  size_t before = list.transfers.size(), after = std::max<size_t>(16, 2 * before);
  std::vector<uint32_t> wider(after);
  std::vector<void *> addresses(after * list.width);
  for (uint64_t n = list.ended; n < list.started; ++n) {
    wider[n % after] = list.transfers[n % before];
    std::copy_n(list.addresses.begin() + n % before * list.width, list.width,
                addresses.begin() + n % after * list.width);
  }
  list.transfers = std::move(wider);
  list.addresses = std::move(addresses);
}

TransferTicket TransferQueues::start(uint32_t transfer, std::span<void *const> from, std::span<void *const> to) {
  uint32_t queue = transfers[transfer].shape.queue;
  List &list = lists[queue];
  if (list.started - list.ended == list.transfers.size())
    grow(list);
  size_t place = list.started % list.transfers.size();
  list.transfers[place] = transfer;
  std::ranges::copy(to, std::ranges::copy(from, list.addresses.begin() + place * list.width).out);
  ++open;
  TransferTicket ticket = {queue, list.started++};
  drive(list);
  return ticket;
}

bool TransferQueues::begin(List &list) {
  size_t place = list.ended % list.transfers.size();
  const Transfer &transfer = transfers[list.transfers[place]];
  const std::vector<size_t> &bytes = transfer.shape.bytes;
  void *const *from = list.addresses.data() + place * list.width;
  switch (transfer.shape.kind) {
  case pb::Transfer::COPY:
    for (size_t i = 0; i < bytes.size(); ++i)
      std::memcpy(from[bytes.size() + i], from[i], bytes[i]);
    return true;
  case pb::Transfer::SEND:
    list.ticket = communicator.startSend(transfer.channel, from[0], bytes[0]);
    return false;
  case pb::Transfer::RECEIVE:
    list.ticket = communicator.startReceive(transfer.channel, from[0], bytes[0]);
    return false;
  default:
    list.ticket = communicator.startCollective(transfer.channel, transfer.shape.shape, from, from + bytes.size());
    return false;
  }
}

void TransferQueues::drive(List &list) {
  while (list.ended < list.started) {
    bool hasEnded = !list.isBegun && begin(list);
    if (!hasEnded) {
      list.isBegun = true;
      Progress progress = communicator.poll(list.ticket);
      if (progress == Progress::Stopped)
        throw RankStopped();
      if (progress == Progress::Pending)
        return;
    }
    list.isBegun = false;
    ++list.ended;
    --open;
  }
}

void TransferQueues::progress() {
  if (open == 0)
    return;
  for (List &list : lists)
    drive(list);
}

void TransferQueues::wait(TransferTicket ticket) {
  Waits waits(communicator.activity, Activity::Ranks);
  for (int spin = 0;; ++spin) {
    waits.look();
    uint32_t seen = communicator.epoch();
    progress();
    if (hasEnded(ticket))
      return;
    if (spin < spins)
      __builtin_ia32_pause();
    else
      communicator.sleep(seen);
  }
}

} // namespace espalier::rt
