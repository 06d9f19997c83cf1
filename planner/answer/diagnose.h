// When no plan fits: which bytes bind, and the smallest changes that would make one fit.
#pragma once

#include "planner/search.h"

#include <vector>

namespace espalier::planner {

/// A choice that was allowed, and the bytes that its fullest stage needs at least.
struct SizedAxes {
  double leastBytes = 0;
  Axes axes;
};

/// Fills binding, nearest and relaxations of a result without plans. `axes` are the choices that
/// were allowed; when there are none, the binding limit is divisibility.
void diagnose(const Problem &problem, const SearchOptions &options, const std::vector<SizedAxes> &axes,
              SearchResult &result);

} // namespace espalier::planner
