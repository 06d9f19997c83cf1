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

} // namespace espalier::rt
