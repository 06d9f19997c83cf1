// What the planner's problem is for a run that only evaluates.
#pragma once

#include "planner/problem.h"

namespace espalier {

/// Takes out of a problem what an evaluation has not: backward, the step, what is kept for them, gradients, optimizer.
void leaveForward(planner::Problem &problem);

} // namespace espalier
