#include "runtime/comm/mpi_session.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <thread>

namespace espalier::rt {
namespace {

// Tags: failures, announcements and farewells; then channels; then groups, interleaved by the rank of the first member.
constexpr int newsTag = 1, groupTag = 2, farewellTag = 3, firstChannelTag = 16, channels = 1 << 16;
constexpr int firstCollectiveTag = firstChannelTag + channels;

/// How long stopped ranks wait for others. `patienceOfTold` applies if launchers also report the stop to every rank.
constexpr std::chrono::milliseconds patience{1500}, patienceOfTold{200};

void rest() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

/// Encodes the announcement of a group: number, queue, members.
std::vector<int> describe(std::span<const int> members, uint32_t queue, int number) {
  std::vector<int> announcement = {number, static_cast<int>(queue)};
  announcement.insert(announcement.end(), members.begin(), members.end());
  return announcement;
}

} // namespace

MpiWorld::Session::Session(const World *host)
    : host(host), context{library, library.world}, news(context, /*isSynchronous=*/false) {
  int hasBegun = 0, level = 0;
  library.check(library.initialized(&hasBegun), "a question");
  if (hasBegun)
    throw std::runtime_error("MPI was initialized in this process before and cannot be initialized twice");
  library.check(library.initThread(nullptr, nullptr, MpiLibrary::serialized, &level), "a beginning");
  library.check(library.commSetErrorHandler(library.world, library.errorsReturn), "an error handler");
  library.check(library.commDuplicate(library.world, &context.communicator), "a communicator");
  library.check(library.commSetErrorHandler(context.communicator, library.errorsReturn), "an error handler");
  library.check(library.commRank(context.communicator, &rank), "a rank");
  library.check(library.commSize(context.communicator, &ranks), "the number of ranks");
  listen();
}

/// A farewell says whether its rank was stopped. After a stop some messages are never received, and MPI_Finalize would
/// wait for them. This process then exits without MPI_Finalize, once the others have seen the stop too.
MpiWorld::Session::~Session() {
  try {
    bool wasStopped = isStopped();
    MpiMessages farewells(context, /*isSynchronous=*/false);
    std::vector<char> answers(ranks);
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != rank) {
        farewells.receive(peer, farewellTag, &answers[peer], 1);
        farewells.send(peer, farewellTag, &wasStopped, 1);
      }
    if (!finish(farewells) || wasStopped || std::ranges::count(answers, 1) > 0)
      return;
    news.cancel();
    library.finalize();
  } catch (const std::exception &) {
    // No rank is left that could receive the failure.
  }
}

int MpiWorld::Session::tagOf(std::span<const int> members, uint32_t queue) {
  int first = members.front();
  int number = first == rank ? numberGroup(members, queue) : askNumber(members, queue);
  return firstCollectiveTag + number * ranks + first;
}

int MpiWorld::Session::tagOfChannel(uint32_t channel) const {
  if (channel >= channels)
    throw PlanError(fmt::format("MPI supports at most {} channels; the plan has channel {}", channels, channel));
  return firstChannelTag + static_cast<int>(channel);
}

int MpiWorld::Session::numberGroup(std::span<const int> members, uint32_t queue) {
  auto &[announcement, messages] =
      announcements.emplace_back(describe(members, queue, numbered), MpiMessages(context, /*isSynchronous=*/false));
  for (int member : members)
    if (member != rank)
      messages.send(member, groupTag, announcement.data(), announcement.size() * sizeof(int));
  std::erase_if(announcements, [](auto &announcement) { return announcement.second.areDone(); });
  return numbered++;
}

int MpiWorld::Session::askNumber(std::span<const int> members, uint32_t queue) {
  for (int source = members.front(); !isStopped();) {
    auto isAsked = [&](const std::vector<int> &announcement) {
      return announcement == describe(members, queue, announcement[0]);
    };
    auto known = std::ranges::find_if(announced, isAsked);
    if (known != announced.end()) {
      int number = known->front();
      announced.erase(known);
      return number;
    }
    int hasCome = 0, bytes = 0;
    MpiLibrary::Status status{};
    library.check(library.probe(source, groupTag, context.communicator, &hasCome, &status), "a probe for messages");
    if (!hasCome) {
      rest();
      continue;
    }
    library.check(library.countOf(&status, library.byte, &bytes), "a message's size");
    std::vector<int> &announcement = announced.emplace_back(bytes / sizeof(int));
    MpiMessages message(context, /*isSynchronous=*/false);
    message.receive(source, groupTag, announcement.data(), announcement.size() * sizeof(int));
    while (!message.areDone())
      rest();
  }
  throw RankStopped();
}

void MpiWorld::Session::listen() { news.receive(MpiLibrary::anySource, newsTag, &heard, sizeof heard); }

bool MpiWorld::Session::isStopped() {
  if (!first && host && host->isStopped())
    first = host->failure();
  if (news.areDone()) {
    if (!first)
      first = unpack(heard);
    listen();
  }
  return first.has_value();
}

/// Makes progress until the messages are complete. Returns false if ranks have stopped and some do not answer.
bool MpiWorld::Session::finish(MpiMessages &messages) {
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> end;
  while (!messages.areDone()) {
    if (isStopped() && !end) // failure messages to the others complete with their receives
      end = Clock::now() + (host ? patienceOfTold : patience);
    if (end && Clock::now() > *end)
      return false;
    rest();
  }
  return true;
}

void MpiWorld::Session::abort(const Failure &failure) noexcept {
  try {
    if (isStopped())
      return;
    first = failure;
    pack(failure, reported);
    MpiMessages messages(context, /*isSynchronous=*/false);
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != rank)
        messages.send(peer, newsTag, &reported, sizeof reported);
    finish(messages);
  } catch (const std::exception &) {
    // MPI no longer works. mpirun ends the other processes when this one ends.
  }
}

} // namespace espalier::rt
