// Reads and writes transformers' config.json. The section `hf_config:` of a model file maps its keys to sizes.
#pragma once

#include "compiler/import/model/architecture.h"
#include "compiler/import/model/model_description.h"
#include "compiler/import/yaml/import_report.h"

#include <string>
#include <vector>

namespace espalier {

/// The result of importHfConfig.
struct ImportedHf {
  std::string yaml; ///< a run file; complete if and only if the diagnostics have no errors
  std::vector<ImportedKey> keys;
  Diagnostics diagnostics;
};

/// Returns the run file for a config.json with contents `text`. Reports all errors at once: keys for features that the
/// architecture does not have, and unknown keys. `searchPath` lists folders with models/ that are searched before the
/// default ones.
ImportedHf importHfConfig(const std::string &file, const std::string &text, const std::vector<std::string> &searchPath);

/// The model of a run that was imported.
struct HfModel {
  const std::optional<Architecture> &architecture;
  const SizeTable &sizes;
  const ModelDescription &description;
};

/// Returns the config.json of a model with weights of type `dtype` ("bfloat16"). If the model file has no
/// `hf_config:`, returns an empty string and reports the reason to `diagnostics`.
std::string hfConfigText(const HfModel &model, const std::string &dtype, Diagnostics &diagnostics);

/// Returns `text`, a config.json, with its data type changed to `dtype` if needed. Each key that contradicts the
/// model is an error.
std::string agreeingHfConfig(const HfModel &model, const std::string &dtype, const std::string &file,
                             const std::string &text, Diagnostics &diagnostics);

} // namespace espalier
