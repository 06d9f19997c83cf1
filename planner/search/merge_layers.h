// Bounds of many kinds of layers at once: their terms added up to those of a few.
#pragma once

#include "planner/problem.h"

namespace espalier::planner {

/// A problem with one layer for all those whose kinds have the same patterns. Under any plan it takes no longer than
/// they do together in any phase, keeps no more than they do under any class of recompute, and has their parameters; it
/// has no transients. For quick bounds where there are many kinds.
Problem mergeLayers(const Problem &problem, int threads);

} // namespace espalier::planner
