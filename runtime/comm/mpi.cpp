// MPI has no wake-up call, so a waiting rank polls with short sleeps in between.
#include "runtime/comm/mpi.h"

#include "runtime/comm/mpi_group.h"
#include "runtime/comm/mpi_session.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fmt/format.h>
#include <thread>

namespace espalier::rt {
namespace {

constexpr std::chrono::microseconds nap{20};
constexpr uint32_t yieldsBeforeNaps =
    64; ///< a message that another rank of this core sends comes sooner than a nap ends

class MpiCommunicator final : public Communicator {
public:
  explicit MpiCommunicator(MpiWorld::Session &session) : session(session) {}

  int rank() const override { return session.rank; }
  int ranks() const override { return session.ranks; }

  std::byte *allocate(size_t bytes) override { return static_cast<std::byte *>(session.memory.take(bytes)); }
  uint32_t joinGroup(std::span<const int> members, uint32_t queue) override;
  uint32_t openSend(int peer, uint32_t channel) override { return open(peer, channel, /*isSend=*/true); }
  uint32_t openReceive(int peer, uint32_t channel) override { return open(peer, channel, /*isSend=*/false); }

  Ticket startCollective(uint32_t group, const CollectiveShape &shape, void *const *from, void *const *to) override;
  Ticket startSend(uint32_t link, const void *data, size_t bytes) override {
    return startTransfer(link, Ticket::Send, const_cast<void *>(data), bytes);
  }
  Ticket startReceive(uint32_t link, void *data, size_t bytes) override {
    return startTransfer(link, Ticket::Receive, data, bytes);
  }
  void progress() override;
  Progress poll(Ticket &ticket) override;

  uint32_t epoch() const override { return pauses; }
  void sleep(uint32_t) override {
    if (++pauses - lastDone < yieldsBeforeNaps)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(nap);
  }
  void abort(const Failure &failure) override { session.abort(failure); }

private:
  struct Membership {
    uint32_t queue;
    MpiGroup group;
  };
  struct End {
    End(const MpiContext &context, int peer, int tag, bool isSend)
        : peer(peer), tag(tag), isSend(isSend), transfers(maxInFlight, MpiMessages(context, /*isSynchronous=*/true)) {}
    int peer, tag;
    bool isSend;
    uint64_t started = 0, settled = 0;
    std::vector<MpiMessages> transfers;
  };

  uint32_t open(int peer, uint32_t channel, bool isSend);
  /// A send only reads `data`.
  Ticket startTransfer(uint32_t link, Ticket::Kind kind, void *data, size_t bytes);
  void advance(Membership &member);
  void advance(End &end);
  void fail(std::string message, bool isEcho = false);

  MpiWorld::Session &session;
  std::deque<Membership> memberships;
  std::deque<End> ends;
  uint32_t pauses = 0;   ///< of all waits
  uint32_t lastDone = 0; ///< the pauses before something was found to be done
};

uint32_t MpiCommunicator::joinGroup(std::span<const int> members, uint32_t queue) {
  for (size_t i = 0; i < memberships.size(); ++i)
    if (memberships[i].queue == queue && std::ranges::equal(memberships[i].group.members(), members))
      return i;
  int tag = session.tagOf(members, queue);
  auto index = static_cast<int>(std::ranges::find(members, rank()) - members.begin());
  memberships.push_back({queue, {session.context, session.memory, {members.begin(), members.end()}, index, tag}});
  return memberships.size() - 1;
}

uint32_t MpiCommunicator::open(int peer, uint32_t channel, bool isSend) {
  int tag = session.tagOfChannel(channel);
  for (size_t i = 0; i < ends.size(); ++i)
    if (ends[i].peer == peer && ends[i].tag == tag && ends[i].isSend == isSend)
      return i;
  ends.emplace_back(session.context, peer, tag, isSend);
  return ends.size() - 1;
}

Ticket MpiCommunicator::startCollective(uint32_t group, const CollectiveShape &shape, void *const *from,
                                        void *const *to) {
  Membership &member = memberships[group];
  Ticket ticket{Ticket::Collective, group, member.group.startedCount()};
  if (!member.group.start(shape, from, to))
    fail(fmt::format("rank {} started more than {} collectives at once in one group", rank(), maxInFlight));
  advance(member);
  return ticket;
}

Ticket MpiCommunicator::startTransfer(uint32_t link, Ticket::Kind kind, void *data, size_t bytes) {
  End &end = ends[link];
  advance(end);
  Ticket ticket{kind, link, end.started};
  if (end.started - end.settled >= maxInFlight) {
    fail(fmt::format("rank {} started more than {} transfers at once on one channel", rank(), maxInFlight));
    return ticket;
  }
  MpiMessages &messages = end.transfers[end.started++ % maxInFlight];
  try {
    if (kind == Ticket::Send)
      messages.send(end.peer, end.tag, data, bytes);
    else
      messages.receive(end.peer, end.tag, data, bytes);
  } catch (const std::exception &error) {
    fail(error.what(), /*isEcho=*/true);
  }
  return ticket;
}

void MpiCommunicator::progress() {
  for (Membership &member : memberships)
    advance(member);
  for (End &end : ends)
    advance(end);
}

Progress MpiCommunicator::poll(Ticket &ticket) {
  bool isDone = true;
  if (ticket.kind == Ticket::Collective) {
    advance(memberships[ticket.channel]);
    isDone = memberships[ticket.channel].group.doneCount() > ticket.sequence;
  } else if (ticket.kind != Ticket::None) {
    advance(ends[ticket.channel]);
    isDone = ends[ticket.channel].settled > ticket.sequence;
  }
  if (session.isStopped())
    return Progress::Stopped;
  if (isDone)
    lastDone = pauses;
  return isDone ? Progress::Done : Progress::Pending;
}

void MpiCommunicator::advance(Membership &member) {
  if (session.first)
    return;
  try {
    member.group.advance();
  } catch (const MpiMismatch &mismatch) {
    fail(fmt::format("rank {} and rank {} of one group started different collectives", rank(), mismatch.peer));
  } catch (const std::exception &error) {
    fail(error.what(), /*isEcho=*/true);
  }
}

void MpiCommunicator::advance(End &end) {
  if (session.first)
    return;
  try {
    while (end.settled < end.started && end.transfers[end.settled % maxInFlight].areDone())
      ++end.settled;
  } catch (const MpiMismatch &mismatch) {
    std::string sent = mismatch.isLonger ? "more" : fmt::format("{} bytes", mismatch.bytes);
    fail(fmt::format("rank {} sends {} where rank {} receives {}", end.peer, sent, rank(), mismatch.expected));
  } catch (const std::exception &error) {
    fail(error.what(), /*isEcho=*/true);
  }
}

void MpiCommunicator::fail(std::string message, bool isEcho) {
  Failure failure;
  failure.rank = rank();
  failure.message = std::move(message);
  failure.isEcho = isEcho;
  abort(failure);
}

} // namespace

MpiWorld::MpiWorld(const World *host) : session(std::make_unique<Session>(host)) {}
MpiWorld::~MpiWorld() = default;

void MpiWorld::endAll(int status) {
  MpiLibrary library;
  int level = 0;
  library.check(library.initThread(nullptr, nullptr, MpiLibrary::serialized, &level), "a beginning");
  library.abortAll(library.world, status);
  std::abort();
}

int MpiWorld::rank() const { return session->rank; }
int MpiWorld::ranks() const { return session->ranks; }

std::unique_ptr<Communicator> MpiWorld::communicator() { return std::make_unique<MpiCommunicator>(*session); }

void MpiWorld::abort(const Failure &failure) noexcept { session->abort(failure); }

std::optional<Failure> MpiWorld::failure() const { return session->first; }

} // namespace espalier::rt
