#include "runtime/launch/all_gather.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/socket.h>
#include <utility>

namespace espalier::rt::launch {
namespace {

constexpr uint32_t mostMembers = 1 << 20;

template <typename T> void put(std::string &bytes, T number) {
  bytes.append(reinterpret_cast<const char *>(&number), sizeof number);
}

template <typename T> T get(std::string_view &bytes) {
  T number;
  if (bytes.size() < sizeof number)
    throw FrameError("is shorter than its length field");
  std::memcpy(&number, bytes.data(), sizeof number);
  bytes.remove_prefix(sizeof number);
  return number;
}

void put(std::string &bytes, const AllGatherName &round) {
  put(bytes, round.group);
  put(bytes, round.number);
  put(bytes, round.queue);
}

AllGatherName getRound(std::string_view &bytes) {
  AllGatherName round;
  round.group = get<uint64_t>(bytes);
  round.number = get<uint64_t>(bytes);
  round.queue = get<uint32_t>(bytes);
  return round;
}

} // namespace

std::string print(const Contribution &contribution) {
  std::string bytes;
  put(bytes, contribution.round);
  put(bytes, contribution.members);
  put(bytes, contribution.index);
  return bytes + contribution.message;
}

Contribution parseContribution(std::string_view bytes) {
  Contribution contribution;
  contribution.round = getRound(bytes);
  contribution.members = get<uint32_t>(bytes);
  contribution.index = get<uint32_t>(bytes);
  if (contribution.members > mostMembers || contribution.index >= contribution.members)
    throw FrameError("contributes as an impossible member");
  contribution.message = bytes;
  return contribution;
}

std::string print(const Gathered &gathered) {
  std::string bytes;
  put(bytes, gathered.round);
  put(bytes, static_cast<uint32_t>(gathered.messages.size()));
  for (const std::string &message : gathered.messages) {
    put(bytes, static_cast<uint32_t>(message.size()));
    bytes += message;
  }
  return bytes;
}

Gathered parseGathered(std::string_view bytes) {
  Gathered gathered{getRound(bytes), {}};
  for (auto members = get<uint32_t>(bytes); members > 0; --members) {
    auto length = get<uint32_t>(bytes);
    if (length > bytes.size())
      throw FrameError("is shorter than its length field");
    gathered.messages.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return gathered;
}

std::optional<AllGathers::Whole> AllGathers::add(Contribution contribution, int from) {
  Round &round = rounds[contribution.round];
  if (round.members == 0)
    round.members = contribution.members;
  bool isNew = round.messages.emplace(contribution.index, std::move(contribution.message)).second;
  if (!isNew || round.members != contribution.members)
    throw FrameError("contributes where another member has, or to a group of another size");
  round.from.insert(from);
  if (round.messages.size() < round.members)
    return std::nullopt;
  Whole whole{{contribution.round, {}}, std::move(round.from)};
  for (auto &[index, message] : round.messages)
    whole.gathered.messages.push_back(std::move(message));
  rounds.erase(contribution.round);
  return whole;
}

void RankChannel::send(std::string_view text) {
  put(unsent, static_cast<uint32_t>(text.size()));
  unsent += text;
  if (error.empty())
    (void)socket.write(unsent, error);
}

std::vector<std::string> RankChannel::turn() {
  constexpr size_t readAtOnce = 1 << 20;
  std::vector<std::string> texts;
  if (!error.empty())
    return texts; // the supervisor of the process detects its end
  if (!unsent.empty())
    (void)socket.write(unsent, error);
  (void)socket.read(received, readAtOnce, error);
  std::string_view left = received;
  for (uint32_t length = 0; left.size() >= sizeof length;) {
    std::memcpy(&length, left.data(), sizeof length);
    if (left.size() - sizeof length < length)
      break;
    texts.emplace_back(left.substr(sizeof length, length));
    left.remove_prefix(sizeof length + length);
  }
  received.erase(0, received.size() - left.size());
  return texts;
}

pollfd RankChannel::handle() const {
  int number = error.empty() ? socket.number() : -1;
  return {number, static_cast<short>(POLLIN | (unsent.empty() ? 0 : POLLOUT)), 0};
}

std::pair<RankChannel, RankChannel> makeRankChannel() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    throw MemoryError(fmt::format("the system refuses a pair of sockets: {}", std::strerror(errno)));
  return {RankChannel(Socket(ends[0])), RankChannel(Socket(ends[1]))};
}

void RankChannels::addHandles(std::vector<pollfd> &handles) const {
  for (const RankChannel &channel : channels)
    handles.push_back(channel.handle());
}

std::vector<std::string> RankChannels::take() {
  std::vector<std::string> all;
  for (size_t i = 0; i < channels.size(); ++i)
    for (std::string &text : channels[i].turn()) {
      contributors[parseContribution(text).round].push_back(i);
      all.push_back(std::move(text));
    }
  return all;
}

void RankChannels::deliver(const std::string &gathered) {
  auto found = contributors.find(parseGathered(gathered).round);
  if (found == contributors.end())
    return;
  for (size_t channel : found->second)
    channels[channel].send(gathered);
  contributors.erase(found);
}

} // namespace espalier::rt::launch
