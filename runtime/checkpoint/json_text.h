// JSON of files that nobody vouches for.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// Parses a document of at most a few levels. Throws nlohmann::json::exception for another or none.
nlohmann::json parseShallow(std::string_view text);

/// A number without sign or fraction, below 2^63. Throws nlohmann::json::exception for anything else.
int64_t wholeNumber(const nlohmann::json &value);
std::vector<int64_t> wholeNumbers(const nlohmann::json &list);

} // namespace espalier::rt
