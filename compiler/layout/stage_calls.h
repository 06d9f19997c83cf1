// Finds the layer calls of a stage, by chunk.
#pragma once

#include "compiler/import/model/model_description.h"
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

/// One layer call: the segment kind of the layer, its indices, and its recomputation policy.
struct LayerCall {
  std::string kind;
  int index = -1;     ///< index among the repeated layers; -1 for embedding and head
  uint32_t layer = 0; ///< index among all layers, including embedding and head
  std::string policy = "none";
};

/// Returns the layer calls of each chunk of a stage in forward order. `runs` lists the model's segments. The model's
/// first chunk begins with the embedding and its last chunk ends with the head.
std::vector<std::vector<LayerCall>> callsOf(const std::vector<SegmentRun> &runs, const planner::Plan &plan, int stage);

} // namespace espalier
