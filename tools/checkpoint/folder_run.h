// The run file of a folder of weights: the one that a checkpoint keeps, or the one that a config.json of transformers
// or the keys of a GGUF file describe.
#pragma once

#include <filesystem>
#include <string>

namespace espalier {

/// Returns whether the newest checkpoint of a folder, or the checkpoint itself, keeps its run file.
bool keepsRun(const std::filesystem::path &checkpoint);

/// A config.json.
struct ConfigText {
  std::string file; ///< for errors
  std::string text;
};

/// Returns the config.json of a folder of transformers, or the one that the keys of a GGUF file stand for. Throws
/// PlanError.
ConfigText configOf(const std::filesystem::path &weights);

/// The files of writeFolderRun().
struct FolderRun {
  std::string run;   ///< the run file
  std::string texts; ///< both files, which change if the folder's do
};

/// Writes run.yaml and models/NAME.yaml into `place`. The run file has the model of the checkpoint or the folder of
/// transformers or GGUF file `weights`, and nothing about devices, data or training. Prints the diagnostics and throws
/// if the model cannot be read.
FolderRun writeFolderRun(const std::filesystem::path &weights, const std::filesystem::path &place);

} // namespace espalier
