// Python's operations on strings, for texts in UTF-8. Positions and counts are those of code points where the name says
// characters, and bytes elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt::jinja {

size_t charactersIn(std::string_view text);
/// Returns the byte after `count` characters from byte `at`, at most the end.
size_t afterCharacters(std::string_view text, size_t at, size_t count);
/// Returns the code points of a text, and the text of code points.
std::u32string decoded(std::string_view text);
std::string encoded(std::u32string_view characters);

/// The classes of str.isspace(), isalpha(), isdigit() (also of numbers that int() reads) and isprintable().
bool isSpace(char32_t character);
bool isLetter(char32_t character);
bool isDigit(char32_t character);
bool isPrintable(char32_t character);
bool isUpper(char32_t character);
bool isLower(char32_t character);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
/// Returns the text with its first character as a title and the others in lower case.
std::string capitalized(std::string_view text);
std::string swappedCase(std::string_view text);
/// Returns str.title(): the first letter of each run of letters in upper case.
std::string titled(std::string_view text);

/// The sides of a text that a strip removes from.
enum class Side { Left, Right, Both };
/// Removes white space, or the given characters.
std::string_view stripped(std::string_view text, Side side, std::optional<std::string_view> characters = std::nullopt);
/// Splits as str.split() and str.rsplit(): without a separator at runs of white space. `most` < 0: no limit.
std::vector<std::string> split(std::string_view text, std::optional<std::string_view> separator, int64_t most,
                               bool isFromRight);
/// Splits as str.splitlines().
std::vector<std::string> splitLines(std::string_view text, bool keepsEnds);
/// Replaces at most `most` occurrences; all if `most` < 0.
std::string replaced(std::string_view text, std::string_view old, std::string_view with, int64_t most);
/// Returns the number of occurrences that do not overlap.
int64_t occurrences(std::string_view text, std::string_view part);
/// Pads to a width in characters; `place` is '<', '>' or '^'.
std::string padded(std::string_view text, int64_t width, char place, std::string_view fill = " ");
/// Returns the text with quotes and escapes, as Python's repr().
std::string reprOfText(std::string_view text);
/// Returns the text with &, <, >, ' and " as entities.
std::string escaped(std::string_view text);
/// Returns the text as a JSON string. With `isAscii`, other characters are escapes.
std::string jsonString(std::string_view text, bool isAscii);

} // namespace espalier::rt::jinja
