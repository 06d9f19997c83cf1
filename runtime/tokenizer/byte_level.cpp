// The map has 256 entries and its largest character is U+0143.
#include "runtime/tokenizer/byte_level.h"

#include "runtime/utf8.h"

namespace espalier::rt {

namespace {
bool isPrintable(int byte) { return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE; }
} // namespace

std::array<char32_t, 256> byteLevelChars() {
  std::array<char32_t, 256> chars;
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte)
    chars[byte] = isPrintable(byte) ? static_cast<char32_t>(byte) : next++;
  return chars;
}

std::string toByteLevel(std::string_view bytes) {
  std::array<char32_t, 256> chars = byteLevelChars();
  std::string text;
  for (char c : bytes)
    appendUtf8(chars[static_cast<uint8_t>(c)], text);
  return text;
}

std::optional<std::string> fromByteLevel(std::string_view text) {
  std::array<char32_t, 256> chars = byteLevelChars();
  std::array<int16_t, 0x144> bytes;
  bytes.fill(-1);
  for (int byte = 0; byte < 256; ++byte)
    bytes[chars[byte]] = static_cast<int16_t>(byte);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    DecodedChar found = decodeUtf8(text, at);
    if (!found.isValid || found.codePoint >= bytes.size() || bytes[found.codePoint] < 0)
      return std::nullopt;
    out += static_cast<char>(bytes[found.codePoint]);
    at += found.bytes;
  }
  return out;
}

} // namespace espalier::rt
