// The planner's answer as JSON.
#pragma once

#include "compiler/import/run_config.h"
#include "planner/answer/what_if.h"
#include "planner/answer/why_not.h"

#include <string>

namespace espalier {

/// model, plan, global_batch, predicted, search, alternatives, rejected; `plan` and `predicted` are null when nothing
/// fits, and `binding` and `relaxations` say why. `what_if` is there where a comparison is given, with `best` in it
/// where a plan is pinned.
std::string planJson(const RunConfig &run, const planner::Problem &problem, const planner::SearchResult &result,
                     const planner::WhatIf *comparison = nullptr);

/// violated, or plan, items (seconds by cause) and more_seconds.
std::string whyNotJson(const planner::WhyNot &answer);

} // namespace espalier
