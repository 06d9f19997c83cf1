// A completion as `generate --json` and `chat --json` print it.
#pragma once

#include "runtime/generate/request.h"

#include <nlohmann/json.hpp>

namespace espalier {

/// Returns tokens, text, finish reason and rates of a completion of a prompt of `promptTokens` tokens.
nlohmann::ordered_json describeCompletion(size_t promptTokens, const rt::Completion &completion);

} // namespace espalier
