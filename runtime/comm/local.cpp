// Ranks as threads. A collective is a round on its group: every member posts its addresses; when
// all have arrived, each one does its own part when it polls (reduces its share for everybody, or
// copies what it needs), and the round is over when all have finished. Counters only grow, so a
// round's slot is reused without being cleared: member m can post to a slot again only after the
// previous round on it is over.
#include "runtime/comm/local.h"

#include "runtime/comm/reduce.h"

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <fmt/format.h>
#include <map>
#include <mutex>

namespace espalier::rt {
namespace {

/// What one member brings to a round.
struct Post {
  const CollectiveShape *shape = nullptr;
  void *const *from = nullptr;
  void *const *to = nullptr;
};

struct Round {
  std::atomic<uint64_t> arrived{0}, finished{0};
  std::vector<Post> posts;
};

struct Group {
  explicit Group(std::span<const int> ranks) : members(ranks.begin(), ranks.end()) {
    for (Round &round : rounds)
      round.posts.resize(members.size());
  }
  std::vector<int> members;
  std::array<Round, maxInFlight> rounds;
};

/// One transfer of a stream: both ends post, one of them copies.
struct Transfer {
  std::atomic<uint64_t> sent{0}, received{0}, claimed{0}, done{0};
  const void *data = nullptr;
  void *place = nullptr;
  size_t sendBytes = 0, receiveBytes = 0;
};

struct Link {
  Link(int from, int to) : from(from), to(to) {}
  int from, to;
  std::array<Transfer, maxInFlight> transfers;
};

struct alignas(64) Bell {
  std::atomic<uint32_t> rings{0};
};

} // namespace

struct LocalWorld::State {
  explicit State(int ranks) : ranks(ranks), bells(ranks) {}

  void ring(int rank) {
    bells[rank].rings.fetch_add(1, std::memory_order_seq_cst);
    bells[rank].rings.notify_all();
  }
  void ringAll(std::span<const int> members) {
    for (int member : members)
      ring(member);
  }
  void abort(Failure first) {
    {
      std::lock_guard lock(mutex);
      if (!failure)
        failure = std::move(first);
    }
    stopped.store(true, std::memory_order_release);
    for (int rank = 0; rank < ranks; ++rank)
      ring(rank);
  }

  const int ranks;
  std::vector<Bell> bells;
  std::atomic<bool> stopped{false};
  mutable std::mutex mutex; ///< guards what follows; taken while loading and on failure only
  std::optional<Failure> failure;
  std::map<std::vector<int>, std::unique_ptr<Group>> groups;
  std::map<std::array<int, 3>, std::unique_ptr<Link>> links; ///< by from, to, stream
};

namespace {

class LocalCommunicator final : public Communicator {
public:
  LocalCommunicator(LocalWorld::State &world, int rank) : world(world), self(rank) {}

  int rank() const override { return self; }
  int ranks() const override { return world.ranks; }

  uint32_t joinGroup(std::span<const int> members) override;
  uint32_t openSend(int peer, Stream stream) override { return open(self, peer, stream); }
  uint32_t openReceive(int peer, Stream stream) override { return open(peer, self, stream); }

  Ticket startCollective(uint32_t group, const CollectiveShape &shape, void *const *from, void *const *to) override;
  Ticket startSend(uint32_t link, const void *data, size_t bytes) override;
  Ticket startReceive(uint32_t link, void *data, size_t bytes) override;
  Progress poll(Ticket &ticket) override;

  uint32_t epoch() const override { return world.bells[self].rings.load(std::memory_order_seq_cst); }
  void sleep(uint32_t seen) override { world.bells[self].rings.wait(seen); }
  void abort(const Failure &failure) override { world.abort(failure); }

private:
  struct Membership {
    Group *group;
    int index;
    uint64_t started = 0;
  };
  struct End {
    Link *link;
    uint64_t started = 0;
  };

  uint32_t open(int from, int to, Stream stream);
  Progress pollCollective(Ticket &ticket);
  Progress pollTransfer(Ticket &ticket);
  bool shapesAgree(const Round &round, const Membership &member);
  void doPart(const Round &round, const Membership &member);
  void reducePart(const Round &round, const Membership &member, size_t buffer);
  void fail(std::string message);

  LocalWorld::State &world;
  const int self;
  std::deque<Membership> memberships;
  std::deque<End> ends;
  std::vector<const void *> sources; ///< of the reduction under way, sized for the largest group
  std::vector<void *> places;
};

uint32_t LocalCommunicator::joinGroup(std::span<const int> members) {
  std::lock_guard lock(world.mutex);
  auto [entry, isNew] = world.groups.try_emplace({members.begin(), members.end()});
  if (isNew)
    entry->second = std::make_unique<Group>(members);
  Group *group = entry->second.get();
  for (size_t i = 0; i < memberships.size(); ++i)
    if (memberships[i].group == group)
      return i;
  auto place = std::find(members.begin(), members.end(), self);
  memberships.push_back({group, static_cast<int>(place - members.begin())});
  sources.resize(std::max(sources.size(), members.size()));
  places.resize(sources.size());
  return memberships.size() - 1;
}

uint32_t LocalCommunicator::open(int from, int to, Stream stream) {
  std::lock_guard lock(world.mutex);
  auto [entry, isNew] = world.links.try_emplace({from, to, static_cast<int>(stream)});
  if (isNew)
    entry->second = std::make_unique<Link>(from, to);
  ends.push_back({entry->second.get()});
  return ends.size() - 1;
}

Ticket LocalCommunicator::startCollective(uint32_t group, const CollectiveShape &shape, void *const *from,
                                          void *const *to) {
  Membership &member = memberships[group];
  uint64_t sequence = member.started++;
  Round &round = member.group->rounds[sequence % maxInFlight];
  uint64_t size = member.group->members.size();
  round.posts[member.index] = {&shape, from, to};
  uint64_t arrived = round.arrived.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (arrived % size == 0)
    world.ringAll(member.group->members);
  return {Ticket::Collective, false, group, sequence};
}

Ticket LocalCommunicator::startSend(uint32_t link, const void *data, size_t bytes) {
  End &end = ends[link];
  uint64_t sequence = end.started++;
  Transfer &transfer = end.link->transfers[sequence % maxInFlight];
  transfer.data = data;
  transfer.sendBytes = bytes;
  transfer.sent.store(sequence + 1, std::memory_order_seq_cst);
  world.ring(end.link->to);
  return {Ticket::Send, false, link, sequence};
}

Ticket LocalCommunicator::startReceive(uint32_t link, void *data, size_t bytes) {
  End &end = ends[link];
  uint64_t sequence = end.started++;
  Transfer &transfer = end.link->transfers[sequence % maxInFlight];
  transfer.place = data;
  transfer.receiveBytes = bytes;
  transfer.received.store(sequence + 1, std::memory_order_seq_cst);
  world.ring(end.link->from);
  return {Ticket::Receive, false, link, sequence};
}

Progress LocalCommunicator::poll(Ticket &ticket) {
  if (world.stopped.load(std::memory_order_acquire))
    return Progress::Stopped;
  switch (ticket.kind) {
  case Ticket::Collective:
    return pollCollective(ticket);
  case Ticket::Send:
  case Ticket::Receive:
    return pollTransfer(ticket);
  case Ticket::None:
    break;
  }
  return Progress::Done;
}

Progress LocalCommunicator::pollCollective(Ticket &ticket) {
  Membership &member = memberships[ticket.channel];
  Round &round = member.group->rounds[ticket.sequence % maxInFlight];
  uint64_t size = member.group->members.size();
  uint64_t all = (ticket.sequence / maxInFlight + 1) * size;
  if (!ticket.worked) {
    if (round.arrived.load(std::memory_order_acquire) < all)
      return Progress::Pending;
    if (!shapesAgree(round, member))
      return Progress::Stopped;
    doPart(round, member);
    ticket.worked = true;
    uint64_t finished = round.finished.fetch_add(1, std::memory_order_acq_rel) + 1;
    if (finished == all && size > 1)
      world.ringAll(member.group->members);
  }
  return round.finished.load(std::memory_order_acquire) >= all ? Progress::Done : Progress::Pending;
}

/// Whichever end sees both posts first claims the transfer and copies.
Progress LocalCommunicator::pollTransfer(Ticket &ticket) {
  Link &link = *ends[ticket.channel].link;
  Transfer &transfer = link.transfers[ticket.sequence % maxInFlight];
  uint64_t mine = ticket.sequence + 1;
  if (transfer.done.load(std::memory_order_acquire) >= mine)
    return Progress::Done;
  if (transfer.sent.load(std::memory_order_acquire) < mine || transfer.received.load(std::memory_order_acquire) < mine)
    return Progress::Pending;
  uint64_t claimed = transfer.claimed.load(std::memory_order_relaxed);
  if (claimed >= mine || !transfer.claimed.compare_exchange_strong(claimed, mine))
    return Progress::Pending;
  if (transfer.sendBytes != transfer.receiveBytes) {
    fail(fmt::format("rank {} sends {} bytes where rank {} receives {}", link.from, transfer.sendBytes, link.to,
                     transfer.receiveBytes));
    return Progress::Stopped;
  }
  std::memcpy(transfer.place, transfer.data, transfer.sendBytes);
  transfer.done.store(mine, std::memory_order_seq_cst);
  world.ring(link.from);
  world.ring(link.to);
  return Progress::Done;
}

bool LocalCommunicator::shapesAgree(const Round &round, const Membership &member) {
  for (size_t i = 0; i < round.posts.size(); ++i)
    if (round.posts[i].shape != round.posts[member.index].shape &&
        *round.posts[i].shape != *round.posts[member.index].shape) {
      fail(fmt::format("rank {} and rank {} of one group started different collectives", self,
                       member.group->members[i]));
      return false;
    }
  return true;
}

/// Copies unless the place is the same already.
void copyTo(void *to, const void *from, size_t bytes) {
  if (to != from && bytes)
    std::memmove(to, from, bytes);
}

void LocalCommunicator::doPart(const Round &round, const Membership &member) {
  const Post &mine = round.posts[member.index];
  const CollectiveShape &shape = *mine.shape;
  size_t width = elementBytes(shape.type);
  int size = round.posts.size();
  for (size_t buffer = 0; buffer < shape.elements.size(); ++buffer) {
    int64_t elements = shape.elements[buffer];
    switch (shape.kind) {
    case pb::Collective::ALL_GATHER:
      for (int i = 0; i < size; ++i) {
        Share share = shareOf(elements, size, i);
        if (share.size() == 0)
          continue;
        copyTo(static_cast<char *>(mine.to[buffer]) + share.begin * width, round.posts[i].from[buffer],
               share.size() * width);
      }
      break;
    case pb::Collective::BROADCAST:
      copyTo(mine.to[buffer], round.posts[0].from[buffer], elements * width);
      break;
    default:
      reducePart(round, member, buffer);
    }
  }
}

/// Reduces this member's share: into everybody's result, or into its own.
void LocalCommunicator::reducePart(const Round &round, const Membership &member, size_t buffer) {
  const CollectiveShape &shape = *round.posts[member.index].shape;
  int size = round.posts.size();
  Share share = shareOf(shape.elements[buffer], size, member.index);
  if (share.size() == 0)
    return;
  bool isScatter = shape.kind == pb::Collective::REDUCE_SCATTER;
  size_t skipped = share.begin * elementBytes(shape.type);
  for (int i = 0; i < size; ++i) {
    sources[i] = static_cast<const char *>(round.posts[i].from[buffer]) + skipped;
    // A scattered result has room for the share only.
    places[i] = isScatter ? nullptr : static_cast<char *>(round.posts[i].to[buffer]) + skipped;
  }
  std::span<void *const> results(places.data(), size);
  void *own = round.posts[member.index].to[buffer];
  if (isScatter)
    results = {&own, 1};
  reduceInOrder(shape.type, shape.reduction, {sources.data(), static_cast<size_t>(size)}, results, 0, share.size());
}

void LocalCommunicator::fail(std::string message) {
  Failure failure;
  failure.rank = self;
  failure.message = std::move(message);
  abort(failure);
}

} // namespace

LocalWorld::LocalWorld(int ranks) : state(std::make_unique<State>(ranks)) {}
LocalWorld::~LocalWorld() = default;

std::unique_ptr<Communicator> LocalWorld::communicator(int rank) {
  return std::make_unique<LocalCommunicator>(*state, rank);
}

void LocalWorld::abort(Failure failure) noexcept { state->abort(std::move(failure)); }

std::optional<Failure> LocalWorld::failure() const {
  std::lock_guard lock(state->mutex);
  return state->failure;
}

} // namespace espalier::rt
