#include "runtime/launch/frames.h"

#include <cstring>
#include <fmt/format.h>
#include <sys/random.h>

namespace espalier::rt::launch {
namespace {

constexpr std::string_view magic = "ESPC";

std::span<const uint8_t> bytesOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t *>(text.data()), text.size()};
}

template <typename Number> void append(std::string &bytes, Number number) {
  for (size_t i = 0; i < sizeof number; ++i)
    bytes.push_back(static_cast<char>(number >> (8 * i)));
}

template <typename Number> Number numberAt(std::string_view bytes, size_t at) {
  Number number = 0;
  for (size_t i = 0; i < sizeof number; ++i)
    number |= static_cast<Number>(static_cast<uint8_t>(bytes[at + i])) << (8 * i);
  return number;
}

Digest sign(const Digest &key, Direction direction, std::string_view frame) {
  std::string text(frame);
  text.push_back(static_cast<char>(direction));
  return hmacSha256(key, bytesOf(text));
}

/// Derives the key for one purpose. Different purposes have different keys.
Digest deriveKey(std::string_view token, std::string_view purpose, std::initializer_list<Digest> nonces) {
  std::string text(purpose);
  for (const Digest &nonce : nonces)
    text.append(reinterpret_cast<const char *>(nonce.data()), nonce.size());
  return hmacSha256(bytesOf(token), bytesOf(text));
}

} // namespace

std::string FrameSealer::seal(const Message &message) {
  if (message.payload.size() > mostPayloadBytes)
    throw FrameError(fmt::format("a message of {} bytes; {} at most", message.payload.size(), mostPayloadBytes));
  std::string frame(magic);
  append(frame, static_cast<uint16_t>(message.kind));
  append(frame, uint16_t{0});
  append(frame, static_cast<uint32_t>(message.payload.size()));
  append(frame, sequence++);
  frame += message.payload;
  Digest signature = sign(key, direction, frame);
  frame.append(reinterpret_cast<const char *>(signature.data()), signature.size());
  return frame;
}

std::optional<Message> FrameOpener::next() {
  // Checks the magic bytes first, so that a peer of another protocol is detected before the announced length has
  // arrived.
  size_t known = std::min(buffer.size(), magic.size());
  if (std::string_view(buffer).substr(0, known) != magic.substr(0, known))
    throw FrameError("speaks another protocol");
  if (buffer.size() < frameHeaderBytes)
    return std::nullopt;
  size_t length = numberAt<uint32_t>(buffer, 8);
  if (length > mostBytes)
    throw FrameError(fmt::format("announces a message of {} bytes; {} at most", length, mostBytes));
  size_t signedBytes = frameHeaderBytes + length;
  Digest signature;
  if (buffer.size() < signedBytes + signature.size())
    return std::nullopt;
  std::memcpy(signature.data(), buffer.data() + signedBytes, signature.size());
  std::string_view frame = std::string_view(buffer).substr(0, signedBytes);
  uint16_t kind = numberAt<uint16_t>(buffer, 4);
  if (!isEqualDigest(signature, sign(key, direction, frame))) {
    bool isRefusal = kind == static_cast<uint16_t>(MessageKind::Refusal);
    if (isRefusal && isEqualDigest(signature, sign(publicKey(), direction, frame)))
      throw ForeignFrame("has another token");
    throw ForeignFrame("signs with another token, or repeats what another connection said");
  }
  uint64_t found = numberAt<uint64_t>(buffer, 12);
  if (found != sequence)
    throw FrameError(fmt::format("sends message {} where {} was wanted", found, sequence));
  if (kind >= messageKinds)
    throw FrameError(fmt::format("sends a message of unknown kind {}", kind));
  ++sequence;
  Message message{static_cast<MessageKind>(kind), std::string(frame.substr(frameHeaderBytes))};
  buffer.erase(0, signedBytes + signature.size());
  return message;
}

Digest publicKey() { return deriveKey("", "espalier control 2: public", {}); }

Digest joinKey(std::string_view token, const Digest &serverNonce) {
  return deriveKey(token, "espalier control 2: join", {serverNonce});
}

Digest sessionKey(std::string_view token, const Digest &serverNonce, const Digest &clientNonce) {
  return deriveKey(token, "espalier control 2: session", {serverNonce, clientNonce});
}

Digest makeNonce() {
  Digest nonce;
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    throw FrameError("the system gives no random bytes");
  return nonce;
}

} // namespace espalier::rt::launch
