// Prints the planner's result as JSON.
#pragma once

#include "compiler/import/run/run_config.h"
#include "planner/answer/explain.h"
#include "planner/answer/sweep.h"
#include "planner/answer/what_if.h"
#include "planner/answer/why_not.h"

#include <cstdint>
#include <string>
#include <vector>

namespace espalier {

/// Returns an object with model, plan, global_batch, predicted, search, alternatives and rejected. If no plan fits,
/// `plan` and `predicted` are null, and `binding` and `relaxations` give the reason. `plain` is SearchResult::plain. If
/// a comparison is given, the object has `what_if`; `what_if.best` exists if a plan is pinned.
std::string planJson(const RunConfig &run, const planner::Problem &problem, const planner::SearchResult &result,
                     planner::FirstPlan first = planner::FirstPlan::Best, const planner::WhatIf *comparison = nullptr);

/// A compiled plan for `compile --json`.
struct CompiledReport {
  std::string output, model;
  int64_t parameters = 0;
  planner::PricedPlan plan;
  bool isPriced = false; ///< whether `plan.prediction` is set
  std::string reason;    ///< why this plan is chosen
  std::vector<uint64_t> arenaBytes;
  uint64_t memoryLimitBytes = 0, fileBytes = 0; ///< memoryLimitBytes: 0 for none
  ClusterConfig cluster;
};

/// Returns an object with output, model, parameters, ranks, plan, description, reason, global_batch, predicted,
/// arena_bytes, memory_limit_bytes, file_bytes and cluster. `predicted` is null if the planner does not price the plan.
std::string compiledJson(const CompiledReport &report);

/// Returns an object with model, system, errors, global_batch and a list of points. A point has devices, plan,
/// predicted and device_hours_per_billion_tokens, or a reason. With a price, it has price_per_billion_tokens, and a
/// point of a changed machine has change.
std::string sweepJson(const RunConfig &run, const planner::Sweep &sweep);

/// Returns an object with the violated constraints, or with plan, items (seconds by cause) and more_seconds.
std::string whyNotJson(const planner::WhyNot &answer);

} // namespace espalier
