// The folder of plans that commands compile for themselves.
#pragma once

#include <filesystem>

namespace espalier {

/// Returns $XDG_CACHE_HOME/espalier/plans, or ~/.cache/espalier/plans, and makes it. Throws PlanError, which ends with
/// `way`.
std::filesystem::path planCache(const char *way);

} // namespace espalier
