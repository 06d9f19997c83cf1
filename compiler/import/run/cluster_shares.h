// Completes the rates of a cluster from its data sheet and the shares of it that software achieves.
#pragma once

#include "compiler/import/run/run_config.h"
#include "compiler/import/yaml/diagnostics.h"

#include <string>
#include <vector>

namespace espalier {

/// Rates that a cluster file takes from data sheets, in bytes/s. 0: not given.
struct DataSheet {
  double memory = 0, link = 0, network = 0, host = 0;
  std::string fabric; ///< kind of the network between hosts: infiniband, roce; empty: not given
};

/// Sets each rate of `cluster` that is 0 to the rate of its data sheet times the share in shares/achieved.yaml of the
/// first of `folders` that has the file, and its efficiencies and ring slope to those of the file. The entry for the
/// cluster's device class or fabric wins over the entry `other`.
void applyShares(ClusterConfig &cluster, const DataSheet &sheet, const std::vector<std::string> &folders,
                 Diagnostics &diagnostics);

/// Returns the text of an error that a cluster lacks `key`, such as "link.bandwidth", with the keys that give it.
std::string missingConstant(const ClusterConfig &cluster, const std::string &key);

} // namespace espalier
