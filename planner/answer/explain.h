// Why this plan: the table of the best plans, what binds, and the difference to any other plan,
// itemised.
#pragma once

#include "planner/model/schedule.h"
#include "planner/search.h"

#include <string>
#include <utility>
#include <vector>

namespace espalier::planner {

/// "dp 8, tp 2, pp 4, micro-batch 1 x 96, 1f1b, zero 1, sequence parallel, full recompute in 3 of
/// 40 layers".
std::string describePlan(const Plan &plan);

/// The same, and "not executable yet" where that is so.
std::string describePlan(const PricedPlan &priced);

/// "1.50 GB", "12.25 MB" or "80 B": binary units, as run files have them (1GB = 2^30).
std::string describeBytes(double bytes);

/// "max_device_memory=78.00GB, without a margin": how a user takes all that a device has.
std::string withoutMargin(double bytes);

/// For each plan step time, tokens per second, MFU, bubble, exposed communication, peak memory. Then the memory of each
/// stage of the first plan by class, and what binds. Lines have at most 100 columns. What a machine's software reserves
/// is in the totals and in no column: a run file's limit is what it leaves.
std::string explainPlans(const SearchResult &result);

/// What limits a plan: all shares of the step that are not compute, the largest first, with the communication of each
/// axis that nothing hides; and how full memory is.
std::string whatBinds(const Prediction &prediction);

/// Why a wish was not chosen. Either `violated` says what forbids it (with bytes), or `items` are
/// the seconds that it takes more (negative: less) than the chosen plan, by cause; they sum to
/// `moreSeconds`.
struct WhyNot {
  std::vector<std::string> violated;
  bool impossible = false; ///< no plan at all is as the wish, whatever the memory: a mistake
  PricedPlan best;         ///< the best plan that honours the wish, when nothing is violated
  std::vector<std::pair<std::string, double>> items;
  double moreSeconds = 0;
  double lowerBoundSeconds = 0; ///< no plan as wished is faster; below the best plan's step where that is not proved
};

/// Searches under `wish` (its set fields replace the problem's pins) and compares with the first plan of `solved`, an
/// answer for the problem's pins whose lower bound holds for them. Settles for a plan that is not proved best where the
/// proof would take long.
WhyNot whyNot(const Problem &problem, const SearchResult &solved, const Pins &wish, const SearchOptions &options = {});

/// For people.
std::string printWhyNot(const WhyNot &answer);

/// The simulated step in Chrome's trace event format: one process per stage, one track per stream
/// (compute, and the work once per step). Times in microseconds.
std::string traceJson(const Problem &problem, const Plan &plan);

} // namespace espalier::planner
