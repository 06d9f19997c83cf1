// A Megatron-LM command line as a run file with MindFormers' keys.
#pragma once

#include "compiler/import/diagnostics.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace espalier {

/// What a tokenizer's vocab.json says. No ids: the file is there and is none.
struct ScriptVocabulary {
  int64_t ids = 0;
  std::optional<int64_t> endOfDocument;
};

struct ArgsOptions {
  std::string cluster; ///< NAME:HOSTSxDEVICES, or NAME where the launcher states the devices
  std::string base;    ///< run file whose keys hold where the flags say nothing, as written into base_config
  std::vector<std::string> ignoredFlags; ///< of the script, as if they were not there
  /// Of the base: devices of its cluster, layers of its model. 0: no base.
  int64_t baseDevices = 0, baseLayers = 0;
  /// Reads a vocab.json; nothing where the file is not here. Null: no file is looked at.
  std::function<std::optional<ScriptVocabulary>(const std::string &file)> readVocabulary;
};

/// What became of one flag.
struct FlagReport {
  std::string flag;
  SourceLocation where;
  std::string effect; ///< the key that holds it, or why it is ignored
  bool isUsed = false;
};

struct ImportedArgs {
  std::string yaml; ///< complete exactly if the diagnostics have no errors
  std::vector<FlagReport> flags;
  Diagnostics diagnostics;
};

/// Reads `text`, a shell script or a plain list of flags, and never executes anything. The last command that names a
/// .py file is taken, or all words where there is none. Errors, all at once and with their place: unknown flags (with
/// the nearest known name), missing or surplus values, values that only a shell knows, sizes that do not divide.
ImportedArgs importArgs(const std::string &file, const std::string &text, const ArgsOptions &options);

} // namespace espalier
