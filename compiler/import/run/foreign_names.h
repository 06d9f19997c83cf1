// Names of transformers, torch, DeepSpeed and Megatron for what a run file says by other keys: for suggestions alone.
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// Returns the keys of a run file that may mean the same as `name`, the likeliest first. A size is given as
/// "model.model_config.SIZE"; a model file may lack it. Upper case and dashes do not matter.
std::vector<std::string> ownNamesOf(std::string name);

} // namespace espalier
