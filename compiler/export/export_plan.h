// Exports a plan as the flags, the YAML or the Python configuration of other systems. test/compiler/export/options
// lists the options of the versions that the exports are for.
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

/// Exports flags of Megatron-LM's pretrain scripts, one per line. `parts` has the letters of Megatron's hybrid models
/// for each kind of layer (`hybridParts`). A model with recurrences is exported with --hybrid-layer-pattern.
ExportedPlan exportMegatron(const planner::Problem &problem, const planner::Plan &plan,
                            const std::vector<std::string> &parts = {});

/// Exports the parallel sections of a MindFormers run file.
ExportedPlan exportMindFormers(const planner::Problem &problem, const planner::Plan &plan);

/// Exports the arguments `training`, `parallelism` and `activation_checkpoint` of torchtitan's Trainer.Config, in
/// Python.
ExportedPlan exportTorchtitan(const planner::Problem &problem, const planner::Plan &plan);

} // namespace espalier
