// Why not another plan: the best one as wished beside the chosen one, itemised, or what forbids it.
#pragma once

#include "planner/search.h"

#include <string>
#include <utility>
#include <vector>

namespace espalier::planner {

/// Why a wish was not chosen. Either `violated` says what forbids it (with bytes), or `items` are
/// the seconds that it takes more (negative: less) than the chosen plan, by cause; they sum to `moreSeconds`.
struct WhyNot {
  std::vector<std::string> violated;
  bool impossible = false; ///< no plan at all is as the wish, whatever the memory: a mistake
  PricedPlan best;         ///< the best plan that honours the wish, when nothing is violated
  PricedPlan chosen;       ///< what it is compared with
  ModelError error;
  bool isSimpler = false; ///< than the chosen one
  std::vector<std::pair<std::string, double>> items;
  double moreSeconds = 0;
  double lowerBoundSeconds = 0; ///< no plan as wished is faster; below the best plan's step where that is not proved
  /// Whether the two steps differ by less than the model can tell.
  bool isEqual() const;
};

/// "8 s slower, outside the error: ..." or "equal within the error, simpler: no: ...", with both times.
std::string verdict(const WhyNot &answer);

/// Searches under `wish` (its set fields replace the problem's pins) and compares with the first plan of `solved`, an
/// answer for the problem's pins whose lower bound holds for them. Settles for a plan that is not proved best where the
/// proof would take long.
WhyNot whyNot(const Problem &problem, const SearchResult &solved, const Pins &wish, const SearchOptions &options = {});

/// For people.
std::string printWhyNot(const WhyNot &answer);

} // namespace espalier::planner
