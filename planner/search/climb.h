// Unlike layers on several chunks of a stage: each chunk may have any range of them, of which there are too many to go
// through. Balanced and even splits are improved layer by layer; the bound is that of the work spread evenly.
#pragma once

#include "planner/search/split.h"

namespace espalier::planner {

/// A good split, as bestSplit().
SplitResult climb(const Problem &problem, StageOptions &options, double limitSeconds, int64_t budget);

} // namespace espalier::planner
