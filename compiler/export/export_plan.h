// Exports a plan as the flags or the YAML of other systems.
#pragma once

#include "planner/problem.h"

#include <string>
#include <vector>

namespace espalier {

/// The exported text, and the plan properties that the system cannot express. Those are omitted from the text.
struct ExportedPlan {
  std::string text;
  std::vector<std::string> notExpressed;
};

/// Exports flags of Megatron-LM's pretrain scripts (core r0.7), one per line.
ExportedPlan exportMegatron(const planner::Problem &problem, const planner::Plan &plan);

/// Exports the parallel sections of a MindFormers run file (r1.0 to r1.5).
ExportedPlan exportMindFormers(const planner::Problem &problem, const planner::Plan &plan);

/// Exports the [parallelism], [training] and [activation_checkpoint] tables of a torchtitan configuration.
ExportedPlan exportTorchtitan(const planner::Problem &problem, const planner::Plan &plan);

} // namespace espalier
