// The rendezvous uses an abstract Unix socket, which leaves no file behind and is visible on this host only. The kernel
// reports the user of the peer. Each side sends one message: its identity, and then the result.
#include "runtime/launch/host_rendezvous.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <set>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace espalier::rt::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t mostMessageBytes = 1 << 16;
constexpr int ask = 100; ///< milliseconds between polls for a signal

/// Returns the socket address of a rendezvous. It differs between users and between runs.
std::pair<sockaddr_un, socklen_t> addressOf(const std::string &run) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string name = fmt::format("espalier-{}-{}", geteuid(), run).substr(0, sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

Socket openSocket() {
  Socket opened(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!opened.isOpen())
    throw MemoryError(fmt::format("the system refuses a socket: {}", std::strerror(errno)));
  return opened;
}

bool isOfThisUser(const Socket &socket) {
  ucred other{};
  socklen_t length = sizeof other;
  return getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 && other.uid == geteuid();
}

/// A message in one packet, with an optional file descriptor.
struct Packet {
  std::string text;
  int file = -1;
};

bool send(const Socket &socket, const Packet &packet) {
  iovec part{const_cast<char *>(packet.text.data()), packet.text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (packet.file >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &packet.file, sizeof(int));
  }
  return sendmsg(socket.number(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(packet.text.size());
}

/// Returns the next packet, or nothing if the peer has closed the connection.
std::optional<Packet> receive(const Socket &socket) {
  Packet packet{std::string(mostMessageBytes, '\0')};
  iovec part{packet.text.data(), packet.text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t count = recvmsg(socket.number(), &message, MSG_CMSG_CLOEXEC);
  if (count <= 0)
    return std::nullopt;
  packet.text.resize(count);
  for (cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header))
    if (header->cmsg_type == SCM_RIGHTS)
      std::memcpy(&packet.file, CMSG_DATA(header), sizeof(int));
  return packet;
}

} // namespace

HostRendezvous::HostRendezvous(const Topology &topology, const Member &own, Milliseconds patience,
                               std::function<int()> stopSignal)
    : ranks(topology.ranks), stopSignal(std::move(stopSignal)), seconds(patience.count() / 1000.0),
      end(Clock::now() + patience) {
  if (isFirst())
    acceptPeers(topology, own);
  else
    connectToFirst(topology, own);
}

HostRendezvous::~HostRendezvous() = default;

/// Waits for the handle, and returns whether it is readable. Throws if a signal arrived, because no rank has begun.
bool HostRendezvous::pause(int handle, int milliseconds) {
  pollfd wait{handle, POLLIN, 0};
  bool hasCome = ::poll(&wait, 1, milliseconds) == 1;
  if (int signal = stopSignal ? stopSignal() : 0)
    throw ReportedElsewhere(128 + signal);
  return hasCome;
}

void HostRendezvous::acceptPeers(const Topology &topology, const Member &own) {
  Socket listener = openSocket();
  auto [address, length] = addressOf(topology.hostRendezvous);
  if (bind(listener.number(), reinterpret_cast<sockaddr *>(&address), length) != 0 ||
      listen(listener.number(), topology.hostRanks) != 0)
    throw LaunchError(fmt::format("another run on this host has the name {} ({}); start them apart",
                                  topology.hostRendezvous, std::strerror(errno)));
  std::set<int> missing;
  for (int rank = 0; rank < topology.world; ++rank)
    missing.insert(rank);
  for (int rank : ranks)
    missing.erase(rank);
  // Faults are reported after all peers have arrived, so that late peers do not wait in vain.
  Fault fault{own.refusal};
  while (!missing.empty()) {
    pause(listener.number(), ask);
    if (Clock::now() > end && fault.text.empty())
      fault.text = fmt::format("rank {} has not come within {} seconds: {} of {} ranks of this host have; start all of "
                               "them",
                               *missing.begin(), seconds, topology.world - missing.size(), topology.world);
    if (Clock::now() > end)
      break;
    Socket socket(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.isOpen() || !isOfThisUser(socket))
      continue;
    Peer peer = identify(std::move(socket), own, fault);
    for (int rank : peer.ranks)
      if (missing.erase(rank) == 0 && fault.text.empty())
        fault.text = fmt::format("two processes say that they are rank {}", rank);
    if (!peer.ranks.empty())
      peers.push_back(std::move(peer));
  }
  if (fault.isReportedThere)
    throw ReportedElsewhere(2);
  if (!fault.text.empty())
    throw LaunchError(fault.text);
}

/// Reads the identity of a peer. Returns no ranks if the peer has disconnected. Keeps the first fault.
HostRendezvous::Peer HostRendezvous::identify(Socket socket, const Member &own, Fault &fault) {
  timeval second{1, 0}; // a peer identifies itself as soon as it connects
  setsockopt(socket.number(), SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
  std::optional<Packet> packet = launch::receive(socket);
  if (!packet)
    return {};
  Member member;
  try {
    member = parseMembers(packet->text).at(0);
  } catch (const std::exception &) {
    return {};
  }
  if (fault.text.empty() && !member.refusal.empty())
    fault = {member.refusal, /*isReportedThere=*/true};
  if (fault.text.empty() && member.version != own.version)
    fault.text = fmt::format("rank {} runs espalier {}, rank 0 runs {}; start all ranks with the same program",
                             fmt::join(member.ranks, ", "), member.version, own.version);
  if (fault.text.empty() && member.planHash != own.planHash)
    fault.text = fmt::format("rank {} has another plan (hash {}, rank 0's is {}); give all the same file",
                             fmt::join(member.ranks, ", "), member.planHash, own.planHash);
  return {std::move(socket), member.ranks};
}

void HostRendezvous::connectToFirst(const Topology &topology, const Member &own) {
  auto [address, length] = addressOf(topology.hostRendezvous);
  for (;;) {
    Socket socket = openSocket();
    if (connect(socket.number(), reinterpret_cast<sockaddr *>(&address), length) == 0) {
      if (!isOfThisUser(socket) || !launch::send(socket, {printMembers({own})}))
        throw LaunchError("what waits for this run's processes is not of this user, or has gone");
      peers.push_back({std::move(socket), {0}});
      return;
    }
    if (Clock::now() > end)
      throw LaunchError(fmt::format("rank 0 has not come to this host within {} seconds; start all ranks", seconds));
    pause(/*handle=*/-1, /*milliseconds=*/10);
  }
}

void HostRendezvous::send(const Setup &setup) {
  for (const Peer &peer : peers)
    launch::send(peer.socket, {setup.checkpointToken, setup.file}); // a missing peer is detected later
}

HostRendezvous::Setup HostRendezvous::receive() {
  while (!pause(peers.front().socket.number(), ask)) {
  }
  std::optional<Packet> packet = launch::receive(peers.front().socket);
  if (!packet || packet->file < 0)
    throw ReportedElsewhere(2);
  return {packet->file, packet->text};
}

std::vector<Neighbour> HostRendezvous::neighbours() const {
  std::vector<Neighbour> all;
  for (const Peer &peer : peers)
    all.push_back({peer.ranks, peer.socket.number()});
  return all;
}

} // namespace espalier::rt::launch
