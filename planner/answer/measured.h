// Fits the rates of a machine to a measured step.
#pragma once

#include "planner/problem.h"

#include <optional>

namespace espalier::planner {

/// Multiplies the rates of compute, memory, links, network and host memory by `factor`. Latencies and peaks stay.
void scaleRates(Machine &machine, double factor);

/// Returns the factor of all rates with which a step of `plan` takes `seconds`: at least 1/16 and at most 16. One time
/// cannot tell the rates apart, so that all have the same factor. Returns nothing if no such factor gives this time.
std::optional<double> rateFactor(const Problem &problem, const Plan &plan, double seconds);

/// Scales the rates of the problem's machine to a measured step. The error of a time is then that of a comparison with
/// the measured plan.
void useMeasured(Problem &problem, double factor);

} // namespace espalier::planner
