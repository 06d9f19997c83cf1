// Parses JSON from untrusted files.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// Parses a document with a few levels at most. Throws nlohmann::json::exception if it is deeper or not JSON.
nlohmann::json parseShallow(std::string_view text);

/// Returns a number without sign or fraction, below 2^63. Throws nlohmann::json::exception for other values.
int64_t wholeNumber(const nlohmann::json &value);
std::vector<int64_t> wholeNumbers(const nlohmann::json &list);

} // namespace espalier::rt
