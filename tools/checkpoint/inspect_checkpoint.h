// Prints a checkpoint for `espalier inspect`.
#pragma once

#include <string>

namespace espalier {

/// Prints the newest checkpoint of a folder, or the checkpoint of a step. Tests depend on the JSON keys. Returns false
/// if shards are missing, truncated or have damaged headers, and reports each on standard error. Throws PlanError if
/// the manifest is invalid.
bool inspectCheckpoint(const std::string &path, bool isJson);

} // namespace espalier
