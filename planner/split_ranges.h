// Schedules with several chunks per stage over layers that are not all alike, or over chunks of given sizes: each chunk
// gets a range of layers of its own.
#pragma once

#include "planner/split_layers.h"

#include <cstdint>
#include <vector>

namespace espalier::planner {

/// The best ranges and what they repeat, as bestSplit(). `given`: the layers of each chunk in model order; empty where
/// they are free.
SplitResult bestRanges(const Problem &problem, StageOptions &options, std::vector<int> given, double limitSeconds,
                       int64_t budget);

} // namespace espalier::planner
