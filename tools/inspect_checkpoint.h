// How `espalier inspect` shows a checkpoint.
#pragma once

#include <string>

namespace espalier {

/// Shows the newest checkpoint of a folder, or the one of a step; as JSON its keys are a contract with tests. False
/// where shards are missing, cut or have damaged headers: each is told on standard error. Throws PlanError where the
/// manifest itself cannot be believed.
bool inspectCheckpoint(const std::string &path, bool isJson);

} // namespace espalier
