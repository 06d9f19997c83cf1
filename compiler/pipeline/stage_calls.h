// Which layers lie on a stage, chunk by chunk.
#pragma once

#include "compiler/import/run_config.h"
#include "planner/plan.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace espalier {

/// Where a chunk of a stage stands among the plan's stages.
size_t planStage(const planner::Plan &plan, int stage, int chunk);

/// Stage that has the model's last chunk, and with it the head.
int headStage(const planner::Plan &plan);

/// One layer of the model: which segment, which number among its repeats, what it keeps.
struct LayerCall {
  std::string kind;
  int index = -1;     ///< among the repeated layers; -1 for embed and head
  uint32_t layer = 0; ///< among all layers, embed and head included
  std::string policy = "none";
};

/// The calls of each chunk of a stage, in the order of the forward pass: the model's first chunk begins with the
/// embedding, its last one ends with the head.
std::vector<std::vector<LayerCall>> callsOf(const RunConfig &run, const planner::Plan &plan, int stage);

} // namespace espalier
