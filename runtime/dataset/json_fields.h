// Reads some string fields of a JSON object without building the whole object.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// Reads the fields `keys` of the object in `line` into `values`, in the same order. Returns an empty string, or the
/// error: invalid JSON, no object, or a key that is missing or has no string value. If a key occurs twice, the last
/// value counts.
std::string readJsonFields(std::string_view line, const std::vector<std::string> &keys,
                           std::vector<std::string> &values);

/// Keys of an object that an error names.
constexpr size_t mostKeysShown = 8;

/// Returns the fault that an object has no such key. `names` are its first keys, at most one more than the error names.
std::string noKey(const std::string &key, const std::vector<std::string> &names);

} // namespace espalier::rt
