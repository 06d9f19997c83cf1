// The sections of `plan --report`: what report.js draws of a search.
#pragma once

#include "compiler/import/run/run_config.h"
#include "planner/answer/explain.h"
#include "planner/answer/why_not.h"
#include "planner/search.h"

#include <string>

namespace espalier {

/// A search to report.
struct PlanReport {
  const RunConfig &run;
  const planner::Problem &problem;
  const planner::SearchResult &result; ///< with at least one plan
  planner::FirstPlan first = planner::FirstPlan::Best;
  const planner::WhyNot *whyNot = nullptr; ///< a second plan, whose step is drawn beside the first one's
};

/// Returns the whole HTML file.
std::string planReport(const PlanReport &report);

} // namespace espalier
