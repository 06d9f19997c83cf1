// Diagnoses a search without a plan: names the binding bytes, and finds the smallest changes that would let a plan
// fit.
#pragma once

#include "planner/search.h"

#include <string>
#include <vector>

namespace espalier::planner {

/// Formats a list of pins as "a, b and c left to the planner".
std::string leftToPlanner(const std::vector<const char *> &names);

/// Pins to free, and the best plan without them.
struct FreedPins {
  std::string change;
  PricedPlan best;
};

/// Returns the single pins that let a plan fit when freed, cheapest first. If no single pin is enough, returns a
/// minimal set. Keeps the pins for which the terms of the problem were profiled.
std::vector<FreedPins> freePins(const Problem &problem, const SearchOptions &options);

/// A config that was allowed, and the least bytes of its fullest stage.
struct SizedConfig {
  double leastBytes = 0;
  ParallelConfig config;
};

/// Sets `binding`, `nearest` and `relaxations` of a result without plans. `configs` are the allowed configs. If there
/// are none, the binding limit is divisibility.
void diagnose(const Problem &problem, const SearchOptions &options, const std::vector<SizedConfig> &configs,
              SearchResult &result);

} // namespace espalier::planner
