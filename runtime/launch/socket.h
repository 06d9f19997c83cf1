// TCP sockets that never block, as the control channel needs them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace espalier::rt::launch {

struct Endpoint;

/// A socket, closed with its owner.
class Socket {
public:
  Socket() = default;
  explicit Socket(int handle) : handle(handle) {}
  Socket(Socket &&other) noexcept : handle(other.handle) { other.handle = -1; }
  Socket &operator=(Socket &&other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }
  ~Socket();

  bool isOpen() const { return handle >= 0; }
  int number() const { return handle; }

  /// Reads what is there, up to `most` bytes, behind `bytes`. False when the other side has closed or the connection is
  /// broken; `error` then says how.
  bool read(std::string &bytes, size_t most, std::string &error);
  /// Writes what goes of `bytes` and takes it away there. False when the connection is broken.
  bool write(std::string &bytes, std::string &error);

private:
  int handle = -1;
};

/// Listens on one address of the endpoint's host. Throws ChannelError.
Socket listenAt(const Endpoint &endpoint);
/// The port that a listening socket has.
uint16_t portOf(const Socket &socket);
/// The next connection, with the other side's address; none when nobody waits.
std::optional<std::pair<Socket, std::string>> acceptFrom(const Socket &listener);
/// Connects within `milliseconds`; not open where nobody listens. Throws ChannelError where the name is none.
Socket connectTo(const Endpoint &endpoint, int milliseconds);

} // namespace espalier::rt::launch
