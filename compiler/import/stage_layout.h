// Megatron's --pipeline-model-parallel-layout: "Et*3|(tt|)*2tL" is embedding and three layers, two stages of two, and
// one layer with the head.
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// Layers of each chunk in model order, or why the text is no layout that can be had here.
struct StageLayout {
  std::vector<int> layers;
  std::string fault;
};

StageLayout readStageLayout(const std::string &text);

} // namespace espalier
