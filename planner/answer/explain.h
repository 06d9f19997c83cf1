// Why this plan: plans in words, the table of the best ones, and what binds. Every number comes from Prediction.
#pragma once

#include "planner/search.h"

#include <string>
#include <utility>
#include <vector>

namespace espalier::planner {

/// "dp 8, tp 2, pp 4, micro-batch 1 x 96, 1f1b, zero 1, sequence parallel, full recompute in 3 of 40 layers".
std::string describePlan(const Plan &plan);

/// The same, and "not executable yet" where that is so.
std::string describePlan(const PricedPlan &priced);

/// "1.50 GB", "12.25 MB" or "80 B": binary units, as run files have them (1GB = 2^30).
std::string describeBytes(double bytes);

/// "max_device_memory=78.00GB, without a margin": how a user takes all that a device has.
std::string withoutMargin(double bytes);

/// "15.62 s ± 12 %": a time with the error that the model is known to have; without one, as "15.62 s", where it is not.
std::string describeSeconds(double seconds, double error);

/// Of the step.
inline std::string describeSeconds(const Prediction &prediction) {
  return describeSeconds(prediction.stepSeconds, prediction.timeError);
}

/// For each plan step time, tokens per second, MFU, bubble, exposed communication, peak memory. Then the memory of each
/// stage of the first plan by class, the limit and the margin behind it; what binds; which plans are equal. Lines have
/// at most 100 columns. What a machine's software reserves is in the totals and in no column: a run file's limit is
/// what it leaves.
std::string explainPlans(const SearchResult &result);

/// What limits a plan: all shares of the step that are not compute, the largest first, with the communication of each
/// axis that nothing hides; and how full memory is.
std::string whatBinds(const Prediction &prediction);

/// The parts of a step by name, in a fixed order; they sum to it.
std::vector<std::pair<std::string, double>> timeEntries(const TimeBreakdown &time);

/// "global batch 64" on a line of its own: all plans that are compared have the same one.
std::string batchLine(const Plan &plan);

} // namespace espalier::planner
