// A rank does its parts of a group's collectives in order. A later collective cannot be complete before an earlier one,
// because all members start the same collectives in the same order.
#include "runtime/comm/shared_memory_communicator.h"

#include <cstring>
#include <deque>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

class SharedMemoryCommunicator final : public Communicator {
public:
  SharedMemoryCommunicator(SharedSegment &segment, SharedMemory &memory, int rank)
      : segment(segment), memory(memory), self(rank) {}

  int rank() const override { return self; }
  int ranks() const override { return segment.ranks; }

  std::byte *allocate(size_t bytes) override { return static_cast<std::byte *>(memory.take(bytes)); }
  uint32_t joinGroup(std::span<const int> members, uint32_t queue) override;
  uint32_t openSend(int peer, uint32_t channel) override { return open(self, peer, channel, /*isSend=*/true); }
  uint32_t openReceive(int peer, uint32_t channel) override { return open(peer, self, channel, /*isSend=*/false); }

  Ticket startCollective(uint32_t group, const CollectiveShape &shape, void *const *from, void *const *to) override;
  Ticket startSend(uint32_t link, const void *data, size_t bytes) override;
  Ticket startReceive(uint32_t link, void *data, size_t bytes) override;
  void progress() override;
  Progress poll(Ticket &ticket) override;

  uint32_t epoch() const override { return segment.bells[self].rings.load(std::memory_order_seq_cst); }
  void sleep(uint32_t seen) override { segment.sleep(self, seen); }
  void abort(const Failure &failure) override { segment.abort(failure); }

private:
  /// `worked` counts the collectives in which this rank has done its part.
  struct Membership {
    Group *group;
    int index;
    uint64_t started = 0, worked = 0;
  };
  /// `settled` counts the transfers known to be done.
  struct End {
    Channel *channel;
    bool isSend;
    uint64_t started = 0, settled = 0;
  };

  uint32_t open(int from, int to, uint32_t number, bool isSend);
  Post &postFor(Membership &member, uint32_t buffers);
  ChannelTransfer &nextTransfer(End &end);
  bool isStopped() const { return segment.isStopped.load(std::memory_order_acquire); }
  void advance(Membership &member);
  void advance(End &end);
  bool copy(const Channel &channel, ChannelTransfer &transfer);
  bool membersAgree(const Membership &member, std::span<const Post> posts);
  void fail(std::string message);

  SharedSegment &segment;
  SharedMemory &memory;
  const int self;
  std::deque<Membership> memberships;
  std::deque<End> ends;
  Collectives collectives;
};

uint32_t SharedMemoryCommunicator::joinGroup(std::span<const int> members, uint32_t queue) {
  Group *group = segment.findGroup(members, queue, memory);
  for (size_t i = 0; i < memberships.size(); ++i)
    if (memberships[i].group == group)
      return i;
  auto place = std::ranges::find(members, self);
  memberships.push_back({group, static_cast<int>(place - members.begin())});
  collectives.reserve(members.size());
  return memberships.size() - 1;
}

uint32_t SharedMemoryCommunicator::open(int from, int to, uint32_t number, bool isSend) {
  Channel *channel = segment.findChannel(from, to, number, memory);
  for (size_t i = 0; i < ends.size(); ++i)
    if (ends[i].channel == channel && ends[i].isSend == isSend)
      return i;
  ends.push_back({channel, isSend});
  return ends.size() - 1;
}

/// Returns the slot in which a member posts next, with room for `buffers` buffers. The room only grows, so allocation
/// soon stops.
Post &SharedMemoryCommunicator::postFor(Membership &member, uint32_t buffers) {
  Round &round = member.group->rounds[member.started % maxInFlight];
  uint64_t before = member.started / maxInFlight * member.group->size;
  if (round.finished.load(std::memory_order_acquire) < before)
    fail(fmt::format("rank {} started more than {} collectives at once in one group", self, maxInFlight));
  Post &post = round.posts[member.index];
  if (post.room < buffers) {
    post.pairs = static_cast<BufferPair *>(memory.take(2 * buffers * sizeof(BufferPair)));
    post.room = 2 * buffers;
  }
  return post;
}

Ticket SharedMemoryCommunicator::startCollective(uint32_t group, const CollectiveShape &shape, void *const *from,
                                                 void *const *to) {
  Membership &member = memberships[group];
  auto buffers = static_cast<uint32_t>(shape.elements.size());
  Post &post = postFor(member, buffers);
  if (isStopped())
    return {Ticket::Collective, group, member.started};
  post = {shape.kind, shape.reduction, shape.type, shape.shift, buffers, post.room, post.pairs};
  for (uint32_t i = 0; i < buffers; ++i)
    post.pairs[i] = {from[i], to[i], shape.elements[i]};
  uint64_t sequence = member.started++;
  Round &round = member.group->rounds[sequence % maxInFlight];
  uint64_t arrived = round.arrived.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (arrived % member.group->size == 0)
    segment.ringAll(member.group->ranks());
  return {Ticket::Collective, group, sequence};
}

ChannelTransfer &SharedMemoryCommunicator::nextTransfer(End &end) {
  ChannelTransfer &transfer = end.channel->transfers[end.started % maxInFlight];
  if (end.started >= maxInFlight && transfer.done.load(std::memory_order_acquire) + maxInFlight <= end.started)
    fail(fmt::format("rank {} started more than {} transfers at once on one channel", self, maxInFlight));
  return transfer;
}

Ticket SharedMemoryCommunicator::startSend(uint32_t link, const void *data, size_t bytes) {
  End &end = ends[link];
  ChannelTransfer &transfer = nextTransfer(end);
  if (isStopped())
    return {Ticket::Send, link, end.started};
  uint64_t sequence = end.started++;
  transfer.data = data;
  transfer.sendBytes = bytes;
  transfer.sent.store(sequence + 1, std::memory_order_seq_cst);
  segment.ring(end.channel->to);
  return {Ticket::Send, link, sequence};
}

Ticket SharedMemoryCommunicator::startReceive(uint32_t link, void *data, size_t bytes) {
  End &end = ends[link];
  ChannelTransfer &transfer = nextTransfer(end);
  if (isStopped())
    return {Ticket::Receive, link, end.started};
  uint64_t sequence = end.started++;
  transfer.place = data;
  transfer.receiveBytes = bytes;
  transfer.received.store(sequence + 1, std::memory_order_seq_cst);
  segment.ring(end.channel->from);
  return {Ticket::Receive, link, sequence};
}

void SharedMemoryCommunicator::progress() {
  for (Membership &member : memberships)
    advance(member);
  for (End &end : ends)
    advance(end);
}

Progress SharedMemoryCommunicator::poll(Ticket &ticket) {
  bool isDone = true;
  if (ticket.kind == Ticket::Collective) {
    Membership &member = memberships[ticket.channel];
    advance(member);
    const Round &round = member.group->rounds[ticket.sequence % maxInFlight];
    uint64_t all = (ticket.sequence / maxInFlight + 1) * member.group->size;
    isDone = round.finished.load(std::memory_order_acquire) >= all;
  } else if (ticket.kind != Ticket::None) {
    End &end = ends[ticket.channel];
    advance(end);
    const ChannelTransfer &transfer = end.channel->transfers[ticket.sequence % maxInFlight];
    isDone = transfer.done.load(std::memory_order_acquire) > ticket.sequence;
  }
  if (isStopped())
    return Progress::Stopped;
  return isDone ? Progress::Done : Progress::Pending;
}

void SharedMemoryCommunicator::advance(Membership &member) {
  Group &group = *member.group;
  for (; member.worked < member.started && !isStopped(); ++member.worked) {
    Round &round = group.rounds[member.worked % maxInFlight];
    uint64_t all = (member.worked / maxInFlight + 1) * group.size;
    if (round.arrived.load(std::memory_order_acquire) < all)
      return;
    std::span<const Post> posts(round.posts, group.size);
    if (!membersAgree(member, posts))
      return;
    collectives.doPart(posts, member.index);
    uint64_t finished = round.finished.fetch_add(1, std::memory_order_acq_rel) + 1;
    if (finished == all && group.size > 1)
      segment.ringAll(group.ranks());
  }
}

/// The end that first sees both posts claims the transfer and copies.
void SharedMemoryCommunicator::advance(End &end) {
  for (; end.settled < end.started && !isStopped(); ++end.settled) {
    ChannelTransfer &transfer = end.channel->transfers[end.settled % maxInFlight];
    uint64_t mine = end.settled + 1;
    if (transfer.done.load(std::memory_order_acquire) >= mine)
      continue;
    if (transfer.sent.load(std::memory_order_acquire) < mine ||
        transfer.received.load(std::memory_order_acquire) < mine)
      return;
    uint64_t claimed = transfer.claimed.load(std::memory_order_relaxed);
    if (claimed >= mine || !transfer.claimed.compare_exchange_strong(claimed, mine))
      return; // the other end copies, then wakes this rank
    if (!copy(*end.channel, transfer))
      return;
    transfer.done.store(mine, std::memory_order_seq_cst);
    segment.ring(end.channel->from);
    segment.ring(end.channel->to);
  }
}

bool SharedMemoryCommunicator::copy(const Channel &channel, ChannelTransfer &transfer) {
  if (transfer.sendBytes != transfer.receiveBytes) {
    fail(fmt::format("rank {} sends {} bytes where rank {} receives {}", channel.from, transfer.sendBytes, channel.to,
                     transfer.receiveBytes));
    return false;
  }
  if (transfer.sendBytes > 0)
    std::memcpy(transfer.place, transfer.data, transfer.sendBytes);
  return true;
}

bool SharedMemoryCommunicator::membersAgree(const Membership &member, std::span<const Post> posts) {
  for (size_t i = 0; i < posts.size(); ++i)
    if (!agree(posts[i], posts[member.index])) {
      fail(fmt::format("rank {} and rank {} of one group started different collectives", self,
                       member.group->members[i]));
      return false;
    }
  return true;
}

void SharedMemoryCommunicator::fail(std::string message) {
  Failure failure;
  failure.rank = self;
  failure.message = std::move(message);
  abort(failure);
}

} // namespace

std::unique_ptr<Communicator> openSharedMemory(SharedSegment &segment, SharedMemory &memory, int rank) {
  return std::make_unique<SharedMemoryCommunicator>(segment, memory, rank);
}

} // namespace espalier::rt
