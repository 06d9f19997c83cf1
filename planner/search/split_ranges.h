// Stages with several choices of what their layers keep, over layers that are not all alike: each chunk gets a range of
// layers of its own.
#pragma once

#include "planner/search/split_layers.h"

#include <cstdint>

namespace espalier::planner {

/// The best ranges and what they repeat, as bestSplit().
SplitResult bestRanges(const Problem &problem, StageOptions &options, double limitSeconds, int64_t budget);

} // namespace espalier::planner
