// UTF-8 decoding, one character at a time. Each byte that is not UTF-8 counts as one character, so that every input can
// be tokenized and restored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace espalier::rt {

/// A decoded character.
struct DecodedChar {
  char32_t codePoint; // 0xFFFD if invalid
  uint8_t bytes;      // 1 to 4; 1 if invalid
  bool isValid;
};

/// Decodes the character at `position` < text.size(). Overlong forms, surrogates and values above U+10FFFF are invalid.
inline DecodedChar decodeUtf8(std::string_view text, size_t position) {
  auto byte = [&](size_t k) { return static_cast<uint8_t>(text[position + k]); };
  constexpr DecodedChar bad{0xFFFD, 1, false};
  uint8_t lead = byte(0);
  if (lead < 0x80)
    return {lead, 1, true};
  int length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || position + length > text.size())
    return bad;
  char32_t value = lead & (0x7F >> length);
  for (int k = 1; k < length; ++k) {
    if ((byte(k) & 0xC0) != 0x80)
      return bad;
    value = value << 6 | (byte(k) & 0x3F);
  }
  constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < least[length] || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
    return bad;
  return {value, static_cast<uint8_t>(length), true};
}

/// Returns the start of the character before `position` > 0.
inline size_t charBefore(std::string_view text, size_t position) {
  do
    --position;
  while (position > 0 && (static_cast<uint8_t>(text[position]) & 0xC0) == 0x80);
  return position;
}

/// Appends a code point up to U+10FFFF as UTF-8.
inline void appendUtf8(char32_t value, std::string &out) {
  if (value < 0x80) {
    out += static_cast<char>(value);
    return;
  }
  int more = value < 0x800 ? 1 : value < 0x10000 ? 2 : 3;
  constexpr uint8_t marks[] = {0, 0xC0, 0xE0, 0xF0};
  out += static_cast<char>(marks[more] | value >> (6 * more));
  while (more-- > 0)
    out += static_cast<char>(0x80 | (value >> (6 * more) & 0x3F));
}

} // namespace espalier::rt
