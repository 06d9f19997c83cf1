// Converts a Megatron-LM command line to a run file with MindFormers' keys.
#pragma once

#include "compiler/import/shell/evaluate_shell.h"
#include "compiler/import/yaml/import_report.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace espalier {

/// The contents of a tokenizer's vocab.json. `ids` is 0 if the file exists but is not a valid vocabulary.
struct ScriptVocabulary {
  int64_t ids = 0;
  std::optional<int64_t> endOfDocument;
};

/// Command-line options of `import-args`.
struct ArgsOptions {
  std::string cluster;                   ///< NAME:HOSTSxDEVICES, or NAME if the launcher gives the number of devices
  std::string base;                      ///< run file whose keys apply where no flag does; written as base_config
  std::vector<std::string> ignoredFlags; ///< flags of the script to ignore
  ShellInputs shell;                     ///< arguments and environment of the script
  /// Devices of the base's cluster and layers of its model; 0 without a base.
  int64_t baseDevices = 0, baseLayers = 0;
  /// Reads a vocab.json; returns nothing if the file does not exist. If null, no file is read.
  std::function<std::optional<ScriptVocabulary>(const std::string &file)> readVocabulary;
};

/// The result of importArgs.
struct ImportedArgs {
  std::string yaml; ///< complete if and only if the diagnostics have no errors
  std::vector<ImportedKey> flags;
  Diagnostics diagnostics;
};

/// Converts `text`, a shell script or a plain list of flags. Never executes anything. Uses the last command that starts
/// a .py file, or all words if there is none. Reports all errors at once with their locations: unknown flags (with the
/// nearest known name), missing or surplus values, values that only a shell knows, sizes that are not divisible.
ImportedArgs importArgs(const std::string &file, const std::string &text, const ArgsOptions &options);

} // namespace espalier
