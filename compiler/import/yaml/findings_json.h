// Diagnostics as members of a JSON answer.
#pragma once

#include "compiler/import/yaml/diagnostics.h"

#include <nlohmann/json.hpp>

namespace espalier {

/// Adds the lists `errors` and `warnings` to an answer.
void addFindings(nlohmann::ordered_json &answer, const Diagnostics &diagnostics);

} // namespace espalier
