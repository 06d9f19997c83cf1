// `pretrained_model_dir` of MindFormers since r1.6: a folder of transformers whose config.json says the model's sizes.
#pragma once

#include "compiler/import/yaml.h"

#include <string>
#include <vector>

namespace espalier {

/// `root` of `file` with the `model` section that the folder's config.json stands for merged below the file's own. A
/// folder without one is an error, because the sizes are then unknown. The folder is relative to the working directory
/// or to the file. `searchPath`: folders with models/.
YamlPtr mergePretrainedModel(const YamlPtr &root, const std::string &file, const std::vector<std::string> &searchPath,
                             Diagnostics &diagnostics);

} // namespace espalier
