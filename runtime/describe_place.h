// Formats the position of a rank from its status and the plan. The rank may be another process, dead or alive.
#pragma once

#include "runtime/launch/stall.h"
#include "runtime/program.h"
#include "runtime/status.h"

#include <string>

namespace espalier::rt {

/// Sets step, action, subprogram and op in `failure` for a rank of `stage`.
void describePlace(const pb::Plan &plan, int stage, const RankStatus &status, Failure &failure);

/// Sets the position of a rank, and what it waits for if it waits: the other ranks of a transfer, or all ranks.
void describeStalled(const Program &program, const RankStatus &status, StalledRank &rank);

/// Returns the transfer that the rank waits for, as "in/3": name and micro-batch. Empty if the rank does not wait.
std::string waitedFor(const pb::Plan &plan, const RankStatus &status);

} // namespace espalier::rt
