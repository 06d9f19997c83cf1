// Terms of a segment whose sequence is split over context ranks, for any number of them.
#pragma once

#include "planner/problem.h"

#include <array>
#include <vector>

namespace espalier {

/// Samples of a micro-batch at which workspaces are planned where the sequence is split.
constexpr int64_t contextSamples[] = {1, 4};

/// The numbers of context ranks to build for where `positions` can be split, ascending: the first divisors from 2, 4,
/// 16 and 64 on, as far as 64. Few ranks are the common choice and known exactly where powers of two divide; many are
/// built for because what lies beyond the last would be taken as too small.
std::vector<int> profiledContextRanks(int64_t positions);

/// Workspaces of a segment by recompute policy.
using ContextWorkspaces = std::array<std::vector<planner::ContextBytes>, 3>;

/// The terms of a split sequence: work of a micro-batch is that of `split`, read at any number of context ranks; what
/// runs once per step is that of `whole`, because parameters are not split.
planner::PatternTerms splitOverContext(const planner::PatternTerms &whole, const planner::PatternTerms &split,
                                       const ContextWorkspaces &workspaces);

} // namespace espalier
