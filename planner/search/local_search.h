// Local search for unequal layers on several chunks per stage. A chunk may have any range of layers, so that
// enumeration is too expensive. The search improves a balanced and an even split one layer at a time. relaxedBound()
// is the lower bound.
#pragma once

#include "planner/search/split.h"

namespace espalier::planner {

/// Returns a good split, for bestSplit().
SplitResult searchLocally(const Problem &problem, StageOptions &options, double limitSeconds, int64_t budget);

} // namespace espalier::planner
