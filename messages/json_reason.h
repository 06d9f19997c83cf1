// Describes the fault of a JSON text without the library's own wording.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace espalier::rt {

/// Returns the reason of a JSON fault without the library's own mark of its kind: "parse error at line 1, column 2:
/// ...".
inline std::string jsonReason(const nlohmann::json::exception &fault) {
  std::string text = fault.what();
  size_t end = text.find("] ");
  return text.starts_with("[json.exception") && end != std::string::npos ? text.substr(end + 2) : text;
}

} // namespace espalier::rt
