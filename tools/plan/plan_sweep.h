// `plan --sweep` and `plan --what-if`: the best plan for each of several numbers of devices or changed machines, with
// its cost.
#pragma once

#include "tools/plan/plan_command.h"

namespace espalier {

/// Prints the sweep that arguments.sweep asks for, or the machines of arguments.whatIf: the present one, each change
/// alone, and all changes together. The planner is free at the file's global batch, and the model is
/// profiled once. Returns 0, 2 for input errors, or 3 if no plan fits any of them.
int planSweep(const PlanArguments &arguments);

} // namespace espalier
