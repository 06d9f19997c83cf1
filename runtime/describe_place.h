// Where a rank stands, in words, from the numbers of its status page and the plan: of this rank or of another one, dead
// or alive.
#pragma once

#include "runtime/launch/status_page.h"
#include "runtime/plan.pb.h"
#include "runtime/status.h"

#include <string>

namespace espalier::rt {

/// Puts step, action, subprogram and op of a rank of `stage` into `failure`.
void describePlace(const pb::Plan &plan, int stage, const StatusPage &page, Failure &failure);

/// The flight that the rank waits for, as "in/3": the transfer's name and the micro-batch; empty where it does not.
std::string waitedFor(const pb::Plan &plan, const StatusPage &page);

} // namespace espalier::rt
