// Finds the layers of a stage, by chunk.
#pragma once

#include "compiler/import/run/run_config.h"
#include "planner/plan.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace espalier {

/// Returns the index of a stage's chunk in the plan's `stages`, which are in model order.
size_t planStage(const planner::Plan &plan, int stage, int chunk);

/// Returns the stage that holds the model's last chunk and therefore the head.
int headStage(const planner::Plan &plan);

/// One layer of the model: its segment kind, its indices, and its recomputation policy.
struct LayerCall {
  std::string kind;
  int index = -1;     ///< index among the repeated layers; -1 for embedding and head
  uint32_t layer = 0; ///< index among all layers, including embedding and head
  std::string policy = "none";
};

/// Returns the calls of each chunk of a stage in forward order. The model's first chunk begins with the embedding and
/// its last chunk ends with the head.
std::vector<std::vector<LayerCall>> callsOf(const RunConfig &run, const planner::Plan &plan, int stage);

} // namespace espalier
