// Base64, in which JSON and tables hold bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace espalier::rt {

/// Returns the bytes of a base64 text with padding, or nothing if the text is not base64.
std::optional<std::string> fromBase64(std::string_view text);

} // namespace espalier::rt
