// A file of configs/clusters on its own, for those who price without a run file.
#pragma once

#include "compiler/import/diagnostics.h"
#include "compiler/import/run_config.h"

#include <optional>
#include <string>

namespace espalier {

/// The constants of a cluster by its name or file, with the peak for products of that type. Faults, and constants of a
/// device that are missing, go to `diagnostics`; nothing when there is no such file.
std::optional<ClusterConfig> readClusterFile(const std::string &name, DType compute, Diagnostics &diagnostics);

} // namespace espalier
