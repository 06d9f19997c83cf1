// Implements `pretrained_model_dir` of MindFormers since r1.6: a transformers folder whose config.json defines the
// model's sizes.
#pragma once

#include "compiler/import/yaml/yaml.h"

#include <string>
#include <vector>

namespace espalier {

/// Returns `root` of `file` with the `model` section derived from the folder's config.json merged below the file's own.
/// A folder without a config.json is an error, because the sizes are then unknown. The folder is relative to the
/// working directory or to the file. `searchPath` lists folders with models/.
YamlPtr mergePretrainedModel(const YamlPtr &root, const std::string &file, const std::vector<std::string> &searchPath,
                             Diagnostics &diagnostics);

} // namespace espalier
