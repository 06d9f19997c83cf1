// Files of configs/ that a run file names: clusters and systems.
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// The file of a `kind` ("cluster", "system") by its name or path: FOLDER/clusters/NAME.yaml in the first folder that
/// has it. Empty where there is none.
std::string findConfig(const std::string &kind, const std::string &name, const std::vector<std::string> &folders);

/// "no cluster 'a101', there are a100_80g_selene, ...".
std::string noConfig(const std::string &kind, const std::string &name, const std::vector<std::string> &folders);

} // namespace espalier
