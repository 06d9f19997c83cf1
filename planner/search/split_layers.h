// How many layers each stage gets, for one choice of axes and schedule: exact under the player, by
// a dynamic program over a lower bound and a search through what the bound leaves open.
#pragma once

#include "planner/search/repeat_choices.h"
#include "planner/search/stage_options.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace espalier::planner {

/// The best split found. lowerBound holds for every split that fits; it equals `seconds` when the
/// split is proven best. Without a split that fits and beats the limit, `counts` is empty and
/// lowerBound >= limit.
struct SplitResult {
  std::vector<int> counts; ///< layers per stage (per chunk with several chunks), in model order of stages
  std::vector<std::vector<RepeatedLayers>> repeated; ///< per stage of each kind, where ChunkOptions chose
  double seconds = std::numeric_limits<double>::infinity();
  double lowerBound = std::numeric_limits<double>::infinity();
  int64_t played = 0;
  int64_t spent = 0; ///< of the budget
};

/// Searches splits faster than `limitSeconds`. `budget` bounds the actions played; when it ends,
/// the bound is returned with a gap.
SplitResult bestSplit(const Problem &problem, StageOptions &options, double limitSeconds, int64_t budget = 4'000'000);

/// A split whose stages take about equally long with what they repeat, under a schedule with one chunk per stage: a
/// bound from either side at once. Without counts when nothing that fits ends by the limit.
SplitResult balancedSplit(const Problem &problem, StageOptions &options, double limitSeconds);

/// Step time of given durations: the stage that ends last, with its work once per step behind it.
double playedStepSeconds(const OrderedSchedule &schedule, const std::vector<ChunkSeconds> &chunks,
                         const std::vector<double> &stepSeconds);

} // namespace espalier::planner
