// Reads lines of JSON. A line may hold what Python's json writes and JSON does not have: NaN, Infinity, numbers above
// the range of double, and halves of surrogate pairs. They are accepted where nobody asks for them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// The value of a key: a text, or a list of token ids.
struct JsonField {
  std::string text;
  std::vector<int32_t> ids;
  bool isIds = false;
};

/// Reads the fields `keys` of the object in `line` into `fields`, in the same order, without building the whole object.
/// Returns an empty string, or the error: invalid JSON, no object, or a key that is missing or has another value. If a
/// key occurs twice, the last value counts.
std::string readJsonFields(std::string_view line, const std::vector<std::string> &keys, std::vector<JsonField> &fields);

/// Parses a line. Sets `fault` if it is not JSON. A text with half of a surrogate pair holds `loneSurrogate` in its
/// place.
nlohmann::json parseJsonLine(std::string_view line, std::string &fault);

/// The code point that stands for half of a surrogate pair, U+FFFF, which is no character.
constexpr std::string_view loneSurrogate = "\xef\xbf\xbf";

/// Returns whether a line holds nothing but white space, as json.loads of Python and jq skip it.
bool isBlankLine(std::string_view line);

/// Keys of an object that an error names.
constexpr size_t mostKeysShown = 8;

/// Returns the fault that an object has no such key. `names` are its first keys, at most one more than the error names.
std::string noKey(const std::string &key, const std::vector<std::string> &names);

} // namespace espalier::rt
