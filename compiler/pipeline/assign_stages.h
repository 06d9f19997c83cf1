// Puts a stage together: its calls in order, the places of their regions, and its lists of actions. On messages of the
// plan; the passes assign-stages and expand-schedule write them down as IR (stage_passes.cpp).
#pragma once

#include "compiler/import/run_config.h"
#include "compiler/pipeline/add_buckets.h"
#include "compiler/pipeline/add_transfers.h"
#include "compiler/pipeline/lay_out_regions.h"
#include "compiler/pipeline/segment_layout.h"
#include "planner/plan.h"

#include "runtime/plan.pb.h"

namespace espalier {

/// What all stages of one plan share.
struct StageInputs {
  const RunConfig &run;
  const planner::Plan &plan;
  const std::vector<SegmentLayout> &segments;
  const RegionSizes &regions;
  const std::vector<BucketTransfers> &buckets; ///< by number
  const StepTransfers &transfers;
  bool trains; ///< else there is an evaluation alone, without gradients and state
};

/// Adds the stages without their lists to `out`, which has everything else.
void assignStages(const StageInputs &inputs, rt::pb::Plan &out);
/// Adds the lists to the stages that assignStages made.
void expandStages(const StageInputs &inputs, rt::pb::Plan &out);

} // namespace espalier
