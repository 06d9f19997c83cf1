#include "runtime/launch/socket.h"

#include "runtime/launch/control_channel.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace espalier::rt::launch {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const Endpoint &endpoint) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  int error = getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  if (error != 0)
    throw ChannelError(fmt::format("the address of {} is not known: {}; give --rendezvous with an address in place of "
                                   "the name",
                                   endpoint.host, gai_strerror(error)));
  return {list, freeaddrinfo};
}

void setUp(int handle) {
  int on = 1;
  setsockopt(handle, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Socket open(const addrinfo &address) {
  return Socket(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

} // namespace

Socket::~Socket() {
  if (handle >= 0)
    close(handle);
}

bool Socket::read(std::string &bytes, size_t most, std::string &error) {
  char block[65536];
  for (size_t taken = 0; taken < most;) {
    ssize_t count = recv(handle, block, std::min(sizeof block, most - taken), 0);
    if (count > 0) {
      bytes.append(block, count);
      taken += count;
    } else if (count == 0) {
      error = "closed by the other side";
      return false;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return true;
    } else if (errno != EINTR) {
      error = std::strerror(errno);
      return false;
    }
  }
  return true;
}

bool Socket::write(std::string &bytes, std::string &error) {
  size_t written = 0;
  while (written < bytes.size()) {
    ssize_t count = ::send(handle, bytes.data() + written, bytes.size() - written, MSG_NOSIGNAL);
    if (count >= 0) {
      written += count;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      error = std::strerror(errno);
      return false;
    }
  }
  bytes.erase(0, written);
  return true;
}

Socket listenAt(const Endpoint &endpoint) {
  Addresses addresses = resolve(endpoint);
  Socket listener = open(*addresses);
  int on = 1;
  setsockopt(listener.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  constexpr int backlog = 128;
  if (!listener.isOpen() || bind(listener.number(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      listen(listener.number(), backlog) != 0)
    throw ChannelError(fmt::format("cannot listen at {}:{}: {}; is it an address of this host, and the port free?",
                                   endpoint.host, endpoint.port, std::strerror(errno)));
  return listener;
}

uint16_t portOf(const Socket &socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(socket.number(), reinterpret_cast<sockaddr *>(&address), &length);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6 &>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in &>(address).sin_port);
}

std::optional<std::pair<Socket, std::string>> acceptFrom(const Socket &listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  Socket connection(
      accept4(listener.number(), reinterpret_cast<sockaddr *>(&address), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!connection.isOpen())
    return std::nullopt;
  setUp(connection.number());
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
  getnameinfo(reinterpret_cast<sockaddr *>(&address), length, host, sizeof host, port, sizeof port,
              NI_NUMERICHOST | NI_NUMERICSERV);
  return std::pair(std::move(connection), fmt::format("{}:{}", host, port));
}

Socket connectTo(const Endpoint &endpoint, int milliseconds) {
  Addresses addresses = resolve(endpoint);
  Socket connection = open(*addresses);
  if (!connection.isOpen())
    return {};
  if (connect(connection.number(), addresses->ai_addr, addresses->ai_addrlen) != 0) {
    pollfd wait{connection.number(), POLLOUT, 0};
    int error = 0;
    socklen_t length = sizeof error;
    if (errno != EINPROGRESS || ::poll(&wait, 1, milliseconds) != 1 ||
        getsockopt(connection.number(), SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0)
      return {};
  }
  setUp(connection.number());
  return connection;
}

} // namespace espalier::rt::launch
