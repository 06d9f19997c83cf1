// Exports a plan's simulated step as a trace.
#pragma once

#include "planner/search.h"

#include <string>

namespace espalier::planner {

/// Returns the simulated step in Chrome's trace event format. Each stage is a process, with one track for compute and
/// one for the work once per step. Times are in microseconds.
std::string traceJson(const Problem &problem, const Plan &plan);

} // namespace espalier::planner
