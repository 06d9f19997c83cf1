// Verifies a plan before it runs, from the plan alone, at compile time and at load time.
#pragma once

#include "format/plan.pb.h"

#include <string>
#include <vector>

namespace espalier::rt {

/// Returns the errors of a plan as sentences with stage, action, subprogram and model line; empty for a valid plan.
/// Never throws, for any content of the message. Returns at most 64 errors.
std::vector<std::string> verifyPlan(const pb::Plan &plan);

} // namespace espalier::rt
