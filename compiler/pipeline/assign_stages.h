// Puts a stage together: its calls in order, the places of their regions, and its lists of actions.
#pragma once

#include "compiler/import/run_config.h"
#include "compiler/pipeline/add_buckets.h"
#include "compiler/pipeline/add_transfers.h"
#include "compiler/pipeline/lay_out_regions.h"
#include "compiler/pipeline/segment_layout.h"
#include "planner/plan.h"

#include "runtime/plan.pb.h"

#include <string>

namespace espalier {

/// What all stages of one plan share.
struct StageInputs {
  const RunConfig &run;
  const planner::Plan &plan;
  const std::vector<SegmentLayout> &segments;
  const RegionSizes &regions;
  const std::vector<BucketTransfers> &buckets; ///< by number
  const StepTransfers &transfers;
};

/// One layer of the model: which segment, which number among its repeats, what it keeps.
struct LayerCall {
  std::string kind;
  int index = -1;     ///< among the repeated layers; -1 for embed and head
  uint32_t layer = 0; ///< among all layers, embed and head included
  std::string policy = "none";
};

/// The calls of a stage, in the order of the forward pass.
std::vector<LayerCall> callsOf(const RunConfig &run, const planner::Plan &plan, int stage);

/// Adds the stages to `out`, which has everything else.
void assignStages(const StageInputs &inputs, rt::pb::Plan &out);

} // namespace espalier
