// Schedules with several chunks per stage: equal chunks of equal layers, or chunks that the user pinned, of which some
// may hold no layer but only the embedding or the head.
#pragma once

#include "planner/split_layers.h"

namespace espalier::planner {

/// The one split into equal chunks, when it fits and beats the limit.
SplitResult evenChunks(StageOptions &options, double limitSeconds);

/// The pinned split, when it fits and beats the limit. What a stage keeps is chosen for its widest chunk; where that
/// repeats work, the bound is the same split without.
SplitResult pinnedChunks(const Problem &problem, StageOptions &options, double limitSeconds);

/// Lays `counts` (layers per chunk in model order) on the stages of the options' axes: each stage keeps what its widest
/// chunk needs to fit; narrower chunks leave out the layers that repeat most.
std::vector<StagePlan> layChunks(StageOptions &options, const std::vector<int> &counts);

} // namespace espalier::planner
