// The report of a failed run: the first failed rank, its position in the program, the transfers that the other ranks
// waited for, and how to resume.
#pragma once

#include "runtime/comm/world.h"
#include "runtime/run/run.h"

#include <vector>

namespace espalier::rt {

/// Writes the report if the options ask for one. Never throws: prints an error if the report cannot be written.
void writeFailureReport(const Program &program, const RunOptions &options, const RankFailure &failure);

/// Returns the transfers that the ranks of `world` other than `failed` waited for, after all ranks have stopped. Rank i
/// of the world is rank `first` + i of the plan.
std::vector<Waiting> waitingRanks(const Program &program, const World &world, int first, int failed);

/// Returns the slow ranks of the run, which every rank of a world knows.
std::vector<SlowAtEnd> slowRanks(const World &world);

} // namespace espalier::rt
