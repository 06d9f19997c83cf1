// Local search for unlike layers on several chunks of a stage: each chunk may have any range of them, too many to go
// through. A balanced and an even split are improved one layer at a time; the lower bound is relaxedBound().
#pragma once

#include "planner/search/split.h"

namespace espalier::planner {

/// A good split, for bestSplit().
SplitResult searchLocally(const Problem &problem, StageOptions &options, double limitSeconds, int64_t budget);

} // namespace espalier::planner
