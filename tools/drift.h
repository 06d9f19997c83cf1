// Compares a run with the planner's prediction, which its plan holds.
#pragma once

#include "format/plan.pb.h"
#include "runtime/run/run.h"

#include <string>
#include <vector>

namespace espalier {

/// Returns the middle of the step times without the first step, which also warms up; 0 without steps.
double medianSeconds(const std::vector<rt::StepRecord> &steps);

/// The processors that the ranks of this host share.
struct HostLoad {
  int ranks = 1, cores = 1;
};

/// Returns the line at the end of a run: predicted and measured step time, planned and used memory. A step time or a
/// memory that differs by more than 15 % comes with its likely cause. Returns an empty string if the plan has no
/// prediction or the run has fewer than three steps.
std::string driftLine(const rt::pb::Plan &plan, const rt::RunResult &result, const HostLoad &load);

} // namespace espalier
