// config.json of transformers, in and out. Which of its keys is which size stands in `hf_config:` of a model file.
#pragma once

#include "compiler/import/import_run.h"

#include <string>
#include <vector>

namespace espalier {

/// What became of one key.
struct HfKeyReport {
  std::string key;
  SourceLocation where;
  std::string effect; ///< the key that holds it, or why it is ignored
  bool isUsed = false;
};

struct ImportedHf {
  std::string yaml; ///< a run file; complete exactly if the diagnostics have no errors
  std::vector<HfKeyReport> keys;
  Diagnostics diagnostics;
};

/// The run file of a config.json whose bytes are `text`. Errors, all at once: keys that say what the architecture
/// cannot express, and keys that are not known. `searchPath`: folders with models/, before the default ones.
ImportedHf importHfConfig(const std::string &file, const std::string &text, const std::vector<std::string> &searchPath);

/// The config.json of a run's model whose weights are of type `dtype` ("bfloat16"); empty, with the reason in
/// `diagnostics`, where its model file has no `hf_config:`.
std::string hfConfigText(const ImportedRun &run, const std::string &dtype, Diagnostics &diagnostics);

/// `text`, a config.json, where it agrees with the run's model: with `dtype` put in where it says another one. Each key
/// that contradicts the model is an error.
std::string agreeingHfConfig(const ImportedRun &run, const std::string &dtype, const std::string &file,
                             const std::string &text, Diagnostics &diagnostics);

} // namespace espalier
