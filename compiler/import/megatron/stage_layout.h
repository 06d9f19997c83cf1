// Parses Megatron's --pipeline-model-parallel-layout. Example: "Et*3|(tt|)*2tL" is the embedding with three layers, two
// stages of two layers, and one layer with the head.
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// The layers of each chunk in model order. `fault` is the reason why the layout is not supported, or empty.
struct StageLayout {
  std::vector<int> layers;
  std::string fault;
};

/// Parses a layout.
StageLayout readStageLayout(const std::string &text);

} // namespace espalier
