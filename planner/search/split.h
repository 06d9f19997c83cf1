// The split of layers over stages for one config: which layers each stage gets and what they keep.
#pragma once

#include "planner/search/stage_options.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace espalier::planner {

/// The best split found, and a lower bound of all splits that fit: equal to `seconds` when the split is proved best.
/// Without a split that fits and beats the limit, `counts` is empty and lowerBound >= limit.
struct SplitResult {
  std::vector<int> counts; ///< layers per stage (per chunk with several chunks), in model order
  std::vector<std::vector<RecomputedLayers>> recomputed; ///< per stage, of each kind
  double seconds = std::numeric_limits<double>::infinity();
  double lowerBound = std::numeric_limits<double>::infinity();
  int64_t played = 0;
  int64_t spent = 0;      ///< of the budget
  int64_t optionWork = 0; ///< StageOptions::work()
};

/// Searches splits faster than `limitSeconds`: any number of layers on each stage. Chunks of a stage differ by at most
/// one layer where all are alike; unlike layers on several chunks are left to local search (local_search.h); what the
/// user pins is taken. `budget` bounds the work, in actions played; when it ends, the bound is returned with a gap.
/// Without any, the first few splits are looked at.
SplitResult bestSplit(const Problem &problem, StageOptions &options, double limitSeconds, int64_t budget = 4'000'000);

} // namespace espalier::planner
