// Messages between launchers, as frames: what one side seals the other opens, if it has the same key, in the same
// order. A frame is "ESPC", kind (u16), zero (u16), length of the payload (u32), sequence (u64), payload, HMAC-SHA256
// over all of it and the direction; little-endian. Nothing here touches a socket.
#pragma once

#include "runtime/data/digest.h"
#include "runtime/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace espalier::rt::launch {

/// What came is no frame, or not from whom it should be.
class FrameError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

enum class MessageKind : uint16_t {
  Hello,     ///< server: its nonce
  Join,      ///< client: who it is
  Refusal,   ///< why the other side is not let in
  Roster,    ///< server: all ranks have met
  Blob,      ///< bytes of a library, as NCCL's id
  Heartbeat, ///< the sender lives
  Failure,   ///< a rank failed
  Stop,      ///< end after the step at hand
  Done,      ///< the sender's ranks have ended well
  Settled,   ///< the sender's ranks have ended after a failure
  Report,    ///< server: all that is known of the failure
  Words,     ///< a rank's contribution to a round
  Gathered,  ///< server: those of all its members
};
constexpr uint16_t messageKinds = 13;

struct Message {
  MessageKind kind = MessageKind::Hello;
  std::string payload;
  bool operator==(const Message &) const = default;
};

constexpr size_t frameHeaderBytes = 20, mostPayloadBytes = 4 << 20;

/// Who seals: both ends have one key, so the direction is part of what is signed.
enum class Direction : uint8_t { ToServer, ToClient };

class FrameSealer {
public:
  FrameSealer(Digest key, Direction direction) : key(key), direction(direction) {}
  /// The next frame. The payload has at most mostPayloadBytes.
  std::string seal(const Message &message);

private:
  Digest key;
  Direction direction;
  uint64_t sequence = 0;
};

class FrameOpener {
public:
  FrameOpener(Digest key, Direction direction) : key(key), direction(direction) {}
  /// Bytes as they come. Holds at most one frame that is not whole, and what came with it.
  void feed(std::string_view bytes) { buffer += bytes; }
  /// The next whole message. Throws FrameError: no frame, too long, another key, out of order or said before.
  std::optional<Message> next();
  /// From the next frame on, with sequences from 0.
  void changeKey(Digest next) { key = next, sequence = 0; }

private:
  Digest key;
  Direction direction;
  uint64_t sequence = 0;
  std::string buffer;
};

/// Keys of a connection: of what the server says first, of the client's answer to it, and of all that follows.
Digest helloKey(std::string_view token);
Digest joinKey(std::string_view token, const Digest &serverNonce);
Digest sessionKey(std::string_view token, const Digest &serverNonce, const Digest &clientNonce);

/// 32 random bytes of the system.
Digest makeNonce();

} // namespace espalier::rt::launch
