// What an import did with each key of a config.json or flag of a command line, and the answer of import-hf and
// import-args about it.
#pragma once

#include "compiler/import/yaml/diagnostics.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace espalier {

/// The result of importing one key or flag.
struct ImportedKey {
  std::string key;
  SourceLocation where;
  std::string effect; ///< the run-file key that holds the value, or the reason why it is ignored
  bool isUsed = false;
};

/// Adds the lists `errors` and `warnings` to an answer.
void addFindings(nlohmann::ordered_json &answer, const Diagnostics &diagnostics);

/// Returns a line for each key.
std::string importText(const std::vector<ImportedKey> &keys);

/// Returns the import of `file` as JSON: the run file `yaml`, null after errors, the effect of each key, and the
/// findings. `output` is the file that holds the run file, or empty.
std::string importJson(const std::string &file, const std::string &output, const std::string &yaml,
                       const std::vector<ImportedKey> &keys, const Diagnostics &diagnostics);

} // namespace espalier
