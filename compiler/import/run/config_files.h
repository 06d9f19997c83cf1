// Finds files of configs/ that a run file names: clusters and systems.
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// Returns the file of a `kind` ("cluster", "system") by its name or path: FOLDER/clusters/NAME.yaml in the first
/// folder that has it. Returns an empty string if there is none.
std::string findConfig(const std::string &kind, const std::string &name, const std::vector<std::string> &folders);

/// Returns the names of the files of a `kind`, sorted, each once.
std::vector<std::string> configNames(const std::string &kind, const std::vector<std::string> &folders);

/// Returns the error text for a name without a file, such as "no cluster 'a101', there are a100_80g_selene, ...".
std::string noConfig(const std::string &kind, const std::string &name, const std::vector<std::string> &folders);

} // namespace espalier
