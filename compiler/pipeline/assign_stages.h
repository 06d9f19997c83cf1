// Builds a stage from its calls, the allocations of its regions and its schedule. Works on plan messages. The passes
// assign-stages and expand-schedule write the result as IR (stage_passes.cpp).
#pragma once

#include "compiler/import/run/run_config.h"
#include "compiler/pipeline/add_buckets.h"
#include "compiler/pipeline/add_transfers.h"
#include "compiler/pipeline/lay_out_regions.h"
#include "compiler/pipeline/segment_layout.h"
#include "planner/plan.h"

#include "runtime/plan.pb.h"

namespace espalier {

/// The inputs that all stages of one plan have in common.
struct StageInputs {
  const RunConfig &run;
  const planner::Plan &plan;
  const std::vector<SegmentLayout> &segments;
  const RegionSizes &regions;
  const std::vector<BucketTransfers> &buckets; ///< by bucket number
  const StepTransfers &transfers;
  bool trains; ///< if false, the plan only evaluates: it has no gradients and no optimizer state
};

/// Adds the stages without their schedules to `out`. All other tables of `out` must be complete.
void assignStages(const StageInputs &inputs, rt::pb::Plan &out);
/// Adds the schedules to the stages that assignStages made.
void expandStages(const StageInputs &inputs, rt::pb::Plan &out);

} // namespace espalier
