// A plan as the flags or YAML of the systems that people already run.
#pragma once

#include "planner/problem.h"

#include <string>
#include <vector>

namespace espalier {

/// The text, and what the system cannot express (it is left out of the text and named here).
struct ExportedPlan {
  std::string text;
  std::vector<std::string> notExpressed;
};

/// Flags of Megatron-LM's pretrain scripts (core r0.7), one per line.
ExportedPlan exportMegatron(const planner::Problem &problem, const planner::Plan &plan);

/// The parallel sections of a MindFormers run file (r1.0 to r1.5).
ExportedPlan exportMindFormers(const planner::Problem &problem, const planner::Plan &plan);

/// The [parallelism], [training] and [activation_checkpoint] tables of a torchtitan configuration.
ExportedPlan exportTorchtitan(const planner::Problem &problem, const planner::Plan &plan);

} // namespace espalier
