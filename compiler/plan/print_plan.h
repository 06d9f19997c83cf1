// Prints the planner's result as JSON.
#pragma once

#include "compiler/import/run/run_config.h"
#include "planner/answer/what_if.h"
#include "planner/answer/why_not.h"

#include <string>

namespace espalier {

/// Returns an object with model, plan, global_batch, predicted, search, alternatives and rejected. If no plan fits,
/// `plan` and `predicted` are null, and `binding` and `relaxations` give the reason. If a comparison is given, the
/// object has `what_if`; `what_if.best` exists if a plan is pinned.
std::string planJson(const RunConfig &run, const planner::Problem &problem, const planner::SearchResult &result,
                     const planner::WhatIf *comparison = nullptr);

/// Returns an object with the violated constraints, or with plan, items (seconds by cause) and more_seconds.
std::string whyNotJson(const planner::WhyNot &answer);

} // namespace espalier
