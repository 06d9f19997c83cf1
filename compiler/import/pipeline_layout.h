// Megatron's --pipeline-model-parallel-layout: what lies on each chunk of the pipeline, in the order of the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier {

struct PipelineLayout {
  std::vector<int64_t> layers; ///< of each chunk
  std::string fault;           ///< why the text cannot be taken; empty when it can
};

/// `E` is the embedding, `t` a layer, `L` the loss; `|` parts chunks, `t*3` and `(t|)*3` repeat, commas mean nothing:
/// `Et*2|(ttt|)*6,t*2L` has 8 chunks. A chunk may be empty. The embedding has to be on the first, the loss on the last.
PipelineLayout readPipelineLayout(const std::string &text);

} // namespace espalier
