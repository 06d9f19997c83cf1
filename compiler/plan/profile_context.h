// Terms of a segment whose sequence is split over context ranks, for any number of them.
#pragma once

#include "planner/problem.h"

namespace espalier {

/// The terms of a split sequence: work of a micro-batch is that of `split`, read at any number of context ranks; what
/// runs once per step is that of `whole`, because parameters are not split.
planner::PatternTerms splitOverContext(const planner::PatternTerms &whole, const planner::PatternTerms &split);

} // namespace espalier
