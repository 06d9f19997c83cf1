// A plan's simulated step as a trace to look at.
#pragma once

#include "planner/search.h"

#include <string>

namespace espalier::planner {

/// The simulated step in Chrome's trace event format: one process per stage, one track per stream
/// (compute, and the work once per step). Times in microseconds.
std::string traceJson(const Problem &problem, const Plan &plan);

} // namespace espalier::planner
