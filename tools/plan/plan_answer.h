// Prints and writes the answer of `espalier plan`: table, JSON, report, trace and export.
#pragma once

#include "compiler/import/run/run_config.h"
#include "planner/answer/explain.h"
#include "planner/answer/what_if.h"
#include "planner/answer/why_not.h"
#include "tools/plan/plan_command.h"

#include <optional>
#include <string>

namespace espalier {

/// A run with the result of the planner's search.
struct Solved {
  RunConfig run;
  planner::Problem problem;
  planner::SearchResult result;
  std::optional<planner::PricedPlan> best; ///< the planner's own choice if the run pins a plan
  planner::FirstPlan first = planner::FirstPlan::Best;
};

/// Prints the plans as a table or as JSON, and reports a pinned plan that does not fit. `howToUse` says how the user
/// gets the best plan. `comparison` is the answer of a what-if. Returns the exit code.
int printAnswer(const PlanArguments &arguments, const Solved &solved, const std::string &howToUse,
                const std::optional<planner::WhatIf> &comparison);

/// Writes the report if one is requested. Returns whether that succeeded.
bool writeReport(const PlanArguments &arguments, const Solved &solved, const planner::WhyNot *whyNot);

/// Writes the trace and prints the export of the first plan, if they are requested. With --diff, prints the script with
/// the flags of the answer. Returns whether that succeeded.
bool writeExtras(const PlanArguments &arguments, const Solved &solved);

} // namespace espalier
