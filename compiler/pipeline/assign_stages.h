// Puts a stage together: its calls in order, and its arena: every region of every call at a fixed place.
#pragma once

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
};

/// Adds the parameter table and the stages to `out`, whose subprograms are already there. Global parameter names are
/// "<segment>.<name>", with the layer's number where a segment repeats: "block.3.attn_q_weight".
void assignStages(const StageInputs &inputs, rt::pb::Plan &out);

} // namespace espalier
