// When no plan fits: which bytes bind, and relaxations, the smallest changes that would make one fit.
#pragma once

#include "planner/search.h"

#include <string>
#include <vector>

namespace espalier::planner {

/// "a, b and c left to the planner".
std::string leftToPlanner(const std::vector<const char *> &names);

/// What fits when pins are given up, and the best plan then.
struct FreedPins {
  std::string change;
  PricedPlan best;
};

/// Single pins whose freedom is enough, from the cheapest to give up; where none is, a set of which each one is needed.
/// Pins that the terms of the problem were profiled for stay.
std::vector<FreedPins> freePins(const Problem &problem, const SearchOptions &options);

/// A choice that was allowed, and the bytes that its fullest stage needs at least.
struct SizedConfig {
  double leastBytes = 0;
  ParallelConfig config;
};

/// Fills binding, nearest and relaxations of a result without plans. `configs` are the choices that
/// were allowed; when there are none, the binding limit is divisibility.
void diagnose(const Problem &problem, const SearchOptions &options, const std::vector<SizedConfig> &configs,
              SearchResult &result);

} // namespace espalier::planner
