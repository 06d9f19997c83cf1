// Signed frames for messages between launchers. One side seals frames, and the other opens them with the same key in
// the same order. A frame is "ESPC", kind (u16), zero (u16), payload length (u32), sequence (u64), payload, HMAC-SHA256
// over all of these and the direction; numbers are little-endian. This code does not use sockets.
#pragma once

#include "runtime/digest.h"
#include "runtime/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace espalier::rt::launch {

/// The received bytes are not a frame, or not from the expected sender.
class FrameError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// A frame whose sender does not know the token.
class ForeignFrame : public FrameError {
public:
  using FrameError::FrameError;
};

/// The kinds of messages on the control channel.
enum class MessageKind : uint16_t {
  Hello,        ///< server: its nonce
  Join,         ///< client: its identity
  Refusal,      ///< why the peer is refused
  Roster,       ///< server: all ranks have launchers
  Blob,         ///< a library's opaque bytes, such as NCCL's id
  Heartbeat,    ///< the sender is alive
  Failure,      ///< a rank failed
  Stop,         ///< stop after the current step
  Done,         ///< the sender's ranks have completed
  Settled,      ///< the sender's ranks have ended after a failure
  Report,       ///< server: the final failure report
  Contribution, ///< a rank's contribution to an all-gather
  Gathered,     ///< server: the contributions of all members
  Stalled,      ///< the sender's ranks have not moved for too long; empty: they move again
};
constexpr uint16_t messageKinds = 14;

/// A message before it is signed or after it is verified.
struct Message {
  MessageKind kind = MessageKind::Hello;
  std::string payload;
  bool operator==(const Message &) const = default;
};

/// The largest payload of a message, and of one whose sender has not proved yet that it knows the token.
constexpr size_t frameHeaderBytes = 20, mostPayloadBytes = 4 << 20, mostUnprovedBytes = 1 << 16;

/// The sender. Both ends have the same key, so the signature covers the direction.
enum class Direction : uint8_t { ToServer, ToClient };

/// Signs messages and numbers them.
class FrameSealer {
public:
  /// Starts with sequence number 0.
  FrameSealer(Digest key, Direction direction) : key(key), direction(direction) {}
  /// Returns the next frame. Throws FrameError if the payload exceeds mostPayloadBytes.
  std::string seal(const Message &message);

private:
  Digest key;
  Direction direction;
  uint64_t sequence = 0;
};

/// Splits received bytes into frames and verifies them.
class FrameOpener {
public:
  /// Expects sequence number 0 first, and payloads of at most mostUnprovedBytes bytes until the key changes.
  FrameOpener(Digest key, Direction direction) : key(key), direction(direction) {}
  /// Adds received bytes. The buffer holds at most one incomplete frame and the bytes that arrived with it.
  void feed(std::string_view bytes) { buffer += bytes; }
  /// Returns the next complete message, or nothing. Throws FrameError for malformed or oversized frames, or a
  /// wrong sequence number, and ForeignFrame for a wrong key or a refusal with the public key.
  std::optional<Message> next();
  /// Sets the key of all later frames, restarts their sequence at 0, and allows payloads of mostPayloadBytes bytes.
  void changeKey(Digest next) { key = next, sequence = 0, mostBytes = mostPayloadBytes; }

private:
  Digest key;
  Direction direction;
  uint64_t sequence = 0;
  size_t mostBytes = mostUnprovedBytes;
  std::string buffer;
};

/// Returns the key of messages that prove nothing: the server's nonce, and its refusal of a peer without the token.
/// Everybody knows it, so a stranger who connects learns nothing about the token.
Digest publicKey();
/// The keys of a connection: for the client's answer to the server's nonce, and for all later messages.
Digest joinKey(std::string_view token, const Digest &serverNonce);
Digest sessionKey(std::string_view token, const Digest &serverNonce, const Digest &clientNonce);

/// Returns 32 random bytes from the system.
Digest makeNonce();

} // namespace espalier::rt::launch
