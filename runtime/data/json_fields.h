// Some string fields of one JSON object, without building the rest of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// Reads the fields `keys` of the object in `line` into `values` (same order). Returns an empty
/// string, or the reason why not: no JSON, no object, a key that is missing or holds no string. A
/// key that comes twice counts last.
std::string readJsonFields(std::string_view line, const std::vector<std::string> &keys,
                           std::vector<std::string> &values);

} // namespace espalier::rt
