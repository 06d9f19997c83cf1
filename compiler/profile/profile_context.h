// Combines the terms of two builds of a segment that differ in some axes only.
#pragma once

#include "compiler/profile/read_sizes.h"
#include "planner/problem.h"

#include <vector>

namespace espalier {

/// Returns the terms of a sharded sequence. Work of a micro-batch comes from `split`, which was read at one number of
/// context ranks and holds for all. Work of the step comes from `whole`, because parameters are not sharded over cp.
planner::PatternTerms splitOverContext(const planner::PatternTerms &whole, const planner::PatternTerms &split);

/// Returns the terms of another ZeRO stage or number of replicas. Work of a micro-batch comes from `whole`, parameters
/// and work of the step from `step`.
planner::PatternTerms withStep(const planner::PatternTerms &whole, planner::PatternTerms step);

/// Adds a pattern for each ZeRO level that the terms read at `point` hold for. Without replicas there is nothing to
/// shard, so the terms without ZeRO hold for every level.
void addZeroPatterns(planner::PatternTerms pattern, const ProfilePoint &point, bool isLayer,
                     std::vector<planner::PatternTerms> &patterns);

} // namespace espalier
