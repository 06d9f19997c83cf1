// Finds files of configs/ that a run file names: models, clusters and systems.
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// Returns the folders that are searched for models/ and clusters/, in order: `first`, those around the run file,
/// $ESPALIER_CONFIGS, and configs/ next to the folders above the executable.
std::vector<std::string> configFolders(const std::string &runFile, const std::vector<std::string> &first);

/// Returns the model files of these folders, sorted by name. If several folders have a file of the same name, the first
/// one counts.
std::vector<std::string> modelFiles(const std::vector<std::string> &folders);

/// Returns the file of a `kind` ("cluster", "system") by its name or path: FOLDER/clusters/NAME.yaml in the first
/// folder that has it. Returns an empty string if there is none.
std::string findConfig(const std::string &kind, const std::string &name, const std::vector<std::string> &folders);

/// Returns the names of the files of a `kind`, sorted, each once.
std::vector<std::string> configNames(const std::string &kind, const std::vector<std::string> &folders);

/// Returns the error text for a name without a file, such as "no cluster 'a101', there are a100_80g_selene, ...".
std::string noConfig(const std::string &kind, const std::string &name, const std::vector<std::string> &folders);

} // namespace espalier
