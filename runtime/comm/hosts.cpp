// Trailing zeros of a message are not sent, because buffers are long and the messages in them short.
#include "runtime/comm/hosts.h"

#include "format/checksum.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <map>

namespace espalier::rt {
namespace {

/// The interval at which a sleeping rank checks whether all ranks are to stop.
constexpr int pollMilliseconds = 20;

class HostsCommunicator final : public Communicator {
public:
  HostsCommunicator(ShmWorld &host, int rank, int ranks, launch::RankChannel channel)
      : host(host), self(rank), all(ranks), memory(host.communicator(rank - host.firstRank())),
        channel(std::move(channel)) {}

  int rank() const override { return self; }
  int ranks() const override { return all; }

  std::byte *allocate(size_t bytes) override { return memory->allocate(bytes); }
  uint32_t joinGroup(std::span<const int> members, uint32_t queue) override;
  uint32_t openSend(int, uint32_t) override { refuse(); }
  uint32_t openReceive(int, uint32_t) override { refuse(); }

  Ticket startCollective(uint32_t group, const CollectiveShape &shape, void *const *from, void *const *to) override;
  Ticket startSend(uint32_t, const void *, size_t) override { refuse(); }
  Ticket startReceive(uint32_t, void *, size_t) override { refuse(); }
  void progress() override;
  Progress poll(Ticket &ticket) override;

  uint32_t epoch() const override { return changes; }
  void sleep(uint32_t) override {
    pollfd handle = channel.handle();
    ::poll(&handle, 1, pollMilliseconds);
    ++changes;
  }
  void abort(const Failure &failure) override { host.abort(failure); }

private:
  struct Membership {
    std::vector<int> members;
    uint32_t queue;
    uint64_t name;
    uint64_t started = 0, done = 0;
  };
  struct Awaited {
    uint32_t membership;
    std::byte *to;
    size_t partBytes;
  };

  [[noreturn]] static void refuse() {
    throw PlanError("the control channel between hosts carries no tensors; collectives across hosts need NCCL");
  }

  ShmWorld &host;
  const int self, all;
  const std::unique_ptr<Communicator> memory; ///< of this host, for allocate()
  launch::RankChannel channel;
  std::vector<Membership> memberships;
  std::map<launch::AllGatherName, Awaited> awaited;
  uint32_t changes = 0;
};

uint32_t HostsCommunicator::joinGroup(std::span<const int> members, uint32_t queue) {
  for (size_t i = 0; i < memberships.size(); ++i)
    if (memberships[i].queue == queue && std::ranges::equal(memberships[i].members, members))
      return i;
  memberships.push_back({{members.begin(), members.end()}, queue, checksum(std::as_bytes(members))});
  return memberships.size() - 1;
}

Ticket HostsCommunicator::startCollective(uint32_t group, const CollectiveShape &shape, void *const *from,
                                          void *const *to) {
  size_t buffers = shape.elements.size();
  if (buffers > 1 || (buffers == 1 && shape.kind != pb::Transfer::ALL_GATHER))
    refuse();
  Membership &member = memberships[group];
  auto members = static_cast<uint32_t>(member.members.size());
  auto index = static_cast<uint32_t>(std::ranges::find(member.members, self) - member.members.begin());
  size_t bytes = buffers == 1 ? shape.elements[0] / members * elementBytes(shape.type) : 0;
  std::string message(buffers == 1 ? static_cast<const char *>(from[0]) : "", bytes);
  message.resize(message.find_last_not_of('\0') + 1); // npos + 1 is 0: an empty message
  launch::AllGatherName round{member.name, member.started, member.queue};
  awaited[round] = {group, buffers == 1 ? static_cast<std::byte *>(to[0]) : nullptr, bytes};
  channel.send(print(launch::Contribution{round, members, index, std::move(message)}));
  return {Ticket::Collective, group, member.started++};
}

void HostsCommunicator::progress() {
  for (const std::string &text : channel.turn()) {
    launch::Gathered gathered = launch::parseGathered(text);
    auto found = awaited.find(gathered.round);
    if (found == awaited.end())
      continue;
    const Awaited &place = found->second;
    for (size_t i = 0; i < gathered.messages.size() && place.partBytes > 0; ++i) {
      const std::string &message = gathered.messages[i];
      size_t bytes = std::min(message.size(), place.partBytes);
      std::memset(place.to + i * place.partBytes, 0, place.partBytes);
      std::memcpy(place.to + i * place.partBytes, message.data(), bytes);
    }
    ++memberships[place.membership].done; // the collectives of one group complete in order
    awaited.erase(found);
    ++changes;
  }
}

Progress HostsCommunicator::poll(Ticket &ticket) {
  progress();
  if (host.isStopped())
    return Progress::Stopped;
  bool isOpen = ticket.kind == Ticket::Collective && memberships[ticket.channel].done <= ticket.sequence;
  return isOpen ? Progress::Pending : Progress::Done;
}

} // namespace

std::unique_ptr<Communicator> openHosts(ShmWorld &host, int rank, int ranks, launch::RankChannel channel) {
  return std::make_unique<HostsCommunicator>(host, rank, ranks, std::move(channel));
}

} // namespace espalier::rt
