// Explains why another plan was not chosen: compares the best plan under a wish with the chosen plan, or names the
// constraint that forbids it.
#pragma once

#include "planner/answer/compare.h"
#include "planner/search.h"

#include <string>
#include <utility>
#include <vector>

namespace espalier::planner {

/// The comparison of a wish with the chosen plan. Either `violated` names the violated constraints (with bytes), or
/// `items` are the extra seconds by cause (negative: less). The items sum to `moreSeconds`.
struct WhyNot {
  std::vector<std::string> violated;
  bool impossible = false; ///< no plan satisfies the wish, whatever the memory: an input error
  PricedPlan best;         ///< the best plan that satisfies the wish, if nothing is violated
  PricedPlan chosen;       ///< the plan to compare with
  ModelError error;
  bool isSimpler = false; ///< than the chosen plan
  std::vector<std::pair<std::string, double>> items;
  double moreSeconds = 0;
  double lowerBoundSeconds = 0; ///< no plan under the wish is faster; less than the best plan's step if not proved
  /// Compares the wished plan with the chosen one.
  Comparison comparison() const;
};

/// Formats the verdict with both times: "8 s slower, +31 %, faster 1 %; ..." or "+2.0 %, same; simpler: no; ...".
std::string verdict(const WhyNot &answer);

/// Searches under `wish`, whose set fields replace the problem's pins, and compares with the first plan of `solved`.
/// `solved` is a result for the problem's pins, and its lower bound holds for them. Returns an unproved plan if the
/// proof would take long.
WhyNot whyNot(const Problem &problem, const SearchResult &solved, const Pins &wish, const SearchOptions &options = {});

/// Formats the comparison as text.
std::string printWhyNot(const WhyNot &answer);

} // namespace espalier::planner
