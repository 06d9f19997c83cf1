// Errors of the JSON library in words for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace espalier::rt {

/// What is wrong, without the library's own number. Example: "[json.exception.type_error.302] type must be string" becomes
/// "type must be string".
inline std::string jsonReason(const nlohmann::json::exception &error) {
  std::string_view text = error.what();
  size_t end = text.starts_with("[json.exception.") ? text.find("] ") : std::string_view::npos;
  return std::string(end == std::string_view::npos ? text : text.substr(end + 2));
}

} // namespace espalier::rt
