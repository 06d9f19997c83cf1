// Non-blocking TCP sockets for the control channel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace espalier::rt::launch {

struct Endpoint;

/// Owns a socket and closes it.
class Socket {
public:
  Socket() = default;
  /// Takes ownership of the descriptor `handle`.
  explicit Socket(int handle) : handle(handle) {}
  Socket(Socket &&other) noexcept : handle(other.handle) { other.handle = -1; }
  Socket &operator=(Socket &&other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }
  ~Socket();

  /// Returns whether the object has a socket.
  bool isOpen() const { return handle >= 0; }
  /// Returns the file descriptor.
  int number() const { return handle; }

  /// Appends the available bytes, at most `most`, to `bytes`. Returns false if the peer has closed the connection or
  /// the connection is broken; `error` then holds the reason.
  bool read(std::string &bytes, size_t most, std::string &error);
  /// Writes as much of `bytes` as possible and removes the written part. Returns false if the connection is broken;
  /// `error` then holds the reason.
  bool write(std::string &bytes, std::string &error);

private:
  int handle = -1;
};

/// Listens on one address of the endpoint's host. Throws ChannelError.
Socket listenAt(const Endpoint &endpoint);
/// Returns the port of a listening socket.
uint16_t portOf(const Socket &socket);
/// Accepts the next connection and returns it with the peer's address, or nothing if no peer waits.
std::optional<std::pair<Socket, std::string>> acceptFrom(const Socket &listener);
/// Connects within `milliseconds`. Returns a closed socket if the connection fails. Throws ChannelError if the name
/// cannot be resolved.
Socket connectTo(const Endpoint &endpoint, int milliseconds);

} // namespace espalier::rt::launch
