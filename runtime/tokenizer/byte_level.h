// GPT-2's mapping of bytes to printable characters (a space is "Ġ"), which keeps vocabularies readable, and its
// inverse.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace espalier::rt {

/// Returns the character of each byte. Printable Latin-1 bytes map to themselves, and other bytes to U+0100 and above.
std::array<char32_t, 256> byteLevelChars();

/// Converts bytes to their characters: " a" gives "Ġa".
std::string toByteLevel(std::string_view bytes);

/// Converts characters back to bytes. Returns nothing if a character represents no byte.
std::optional<std::string> fromByteLevel(std::string_view text);

} // namespace espalier::rt
