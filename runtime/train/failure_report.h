// What is left of a run that failed: which rank was first, where it stood, what the others waited for, and how to go
// on.
#pragma once

#include "runtime/comm/world.h"
#include "runtime/train/run.h"

#include <vector>

namespace espalier::rt {

/// Writes the report where the options ask for one. Throws nothing: a report that cannot be written is told.
void writeFailureReport(const Program &program, const RunOptions &options, const RankFailure &failure);

/// What the ranks of `world` but the `failed` one waited for, once all have stopped. Rank i of the world is rank
/// `first` + i of the plan.
std::vector<Waiting> waitingRanks(const Program &program, const World &world, int first, int failed);

} // namespace espalier::rt
