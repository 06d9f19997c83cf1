// GPT-2 writes each byte as one printable character (a space is "Ġ"), so that vocabularies are
// readable text. This is that map and its inverse.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace espalier::rt {

/// The character of each byte: printable Latin-1 stands for itself, the other bytes for U+0100
/// upwards.
std::array<char32_t, 256> byteLevelChars();

/// Bytes as their characters: " a" gives "Ġa".
std::string toByteLevel(std::string_view bytes);

/// Characters back to bytes; nothing when one of them stands for no byte.
std::optional<std::string> fromByteLevel(std::string_view text);

} // namespace espalier::rt
