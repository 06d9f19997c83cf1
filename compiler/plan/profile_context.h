// Combines the terms of two builds of a segment that differ in some axes only.
#pragma once

#include "planner/problem.h"

namespace espalier {

/// Returns the terms of a sharded sequence. Work of a micro-batch comes from `split`, which was read at one number of
/// context ranks and holds for all. Work of the step comes from `whole`, because parameters are not sharded over cp.
planner::PatternTerms splitOverContext(const planner::PatternTerms &whole, const planner::PatternTerms &split);

/// Returns the terms of another ZeRO stage or number of replicas. Work of a micro-batch comes from `whole`, parameters
/// and work of the step from `step`.
planner::PatternTerms withStep(const planner::PatternTerms &whole, planner::PatternTerms step);

} // namespace espalier
