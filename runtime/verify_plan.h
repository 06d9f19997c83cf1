// The proof before the run: what must hold of a plan, read from the plan alone, at compile and at
// load.
#pragma once

#include "runtime/plan.pb.h"

#include <string>
#include <vector>

namespace espalier::rt {

/// What is wrong with a plan, as sentences that name stage, action, subprogram and model line;
/// empty for a plan that may run. Never throws for any content of the message. At most 64 errors.
std::vector<std::string> verifyPlan(const pb::Plan &plan);

} // namespace espalier::rt
