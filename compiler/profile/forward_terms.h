// Reduces the planner's problem to a run that only evaluates.
#pragma once

#include "planner/problem.h"

namespace espalier {

/// Removes the parts of a problem that an evaluation does not have: backward pass, optimizer step, saved values,
/// gradients and optimizer state.
void leaveForward(planner::Problem &problem);

} // namespace espalier
