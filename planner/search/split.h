// Finds the split of layers over stages for one config, and what the layers keep.
#pragma once

#include "planner/search/stage_options.h"

#include <cstdint>
#include <vector>

namespace espalier::planner {

/// The best split found, and a lower bound of all splits that fit. The bound equals `seconds` when the split is proved
/// best. If no split fits and beats the limit, `counts` is empty and lowerBound >= limit.
struct SplitResult {
  std::vector<int> counts; ///< layers per stage (per chunk with several chunks), in model order
  std::vector<std::vector<RecomputedLayers>> recomputed; ///< per stage, of each kind
  double seconds = kInfinity;
  double lowerBound = kInfinity;
  int64_t played = 0;
  int64_t spent = 0;      ///< of the budget
  int64_t optionWork = 0; ///< StageOptions::work()
  /// Sets the split: its step, its layers, and the option of each stage.
  void take(double step, std::vector<int> layers, const std::vector<const StageOption *> &options);
};

/// Searches splits faster than `limitSeconds`, with any number of layers on each stage. If all layers are equal,
/// chunks of a stage differ by at most one layer. Unequal layers on several chunks use local search (local_search.h).
/// Pinned layers are kept. `budget` bounds the work, in simulated actions. When it ends, the result has a gap. With a
/// budget of 0, only the first few splits are examined.
SplitResult bestSplit(const Problem &problem, StageOptions &options, double limitSeconds, int64_t budget = 4'000'000);

} // namespace espalier::planner
