// Compares a run with the planner's prediction, which its plan holds.
#pragma once

#include "format/plan.pb.h"
#include "runtime/program.h"
#include "runtime/run/run.h"

#include <string>
#include <vector>

namespace espalier {

/// Returns the middle of the step times without the first step, which also warms up; 0 without steps.
double medianSeconds(const std::vector<rt::StepRecord> &steps);

/// What this process knows of the run beside its plan and its steps.
struct RunSite {
  int ranks = 1, cores = 1;  ///< the processors that the ranks of this host share
  bool isCalibrated = false; ///< the plan is priced with rates that were measured on these devices
  uint64_t plannedBytes = 0; ///< the bytes that a step's peakBytes counts, as the plan has them; 0: unknown
};

/// Returns what is known of a run of the program on this host.
RunSite siteOf(const rt::Program &program, const rt::RunOptions &options);

/// Returns the line at the end of a run: predicted and measured step time, planned and used memory. A step time that
/// differs by more than 15 % comes with its likely cause. Without rates that were measured here, there is nothing to
/// compare the time with, and the line says so. Returns an empty string if the plan has no prediction or the run has
/// fewer than three steps.
std::string driftLine(const rt::pb::Plan &plan, const rt::RunResult &result, const RunSite &site);

} // namespace espalier
