// Derives the terms of a segment with a sequence that is sharded over any number of context-parallel ranks.
#pragma once

#include "planner/problem.h"

namespace espalier {

/// Returns the terms of a sharded sequence. Work of a micro-batch comes from `split`, which was read at one number of
/// context ranks and holds for all. Work of the step comes from `whole`, because parameters are not sharded over cp.
planner::PatternTerms splitOverContext(const planner::PatternTerms &whole, const planner::PatternTerms &split);

} // namespace espalier
