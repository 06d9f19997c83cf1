// The search: the best plan of the whole space under the cost model, with a certificate, or why
// none fits.
#pragma once

#include "planner/price.h"

#include <string>
#include <vector>

namespace espalier::planner {

/// What the search may use and how much it reports.
struct SearchOptions {
  bool all = false;     ///< also plans that the executor cannot run yet
  int alternatives = 5; ///< best plans of other kinds to report, at most two of one family (simplicity.h)
  int threads = 1;      ///< the result does not depend on it
  /// Go through all that bounds leave open below the best; otherwise only through the most promising, for an answer at
  /// once with the gap that is left.
  bool prove = true;
  /// Among plans whose times are equal as far as the model can tell (`Problem::error`) the simplest one is the best;
  /// otherwise the fastest.
  bool simplest = true;
  bool diagnose = true; ///< when nothing fits, say what binds
  bool relax = true;    ///< ... and look for the smallest relaxations
};

/// A change that would let a plan fit, smallest first.
struct Relaxation {
  std::string change;   ///< for people: `recompute=full`, `devices=64`, ...
  double needBytes = 0; ///< of the fullest stage with the change
};

/// Sizes and the certificate of a search.
struct SearchStatistics {
  double space = 0;      ///< plans in the space, at most 1e300
  int64_t evaluated = 0; ///< plans whose pipeline was played
  double seconds = 0;
  double fastestSeconds = 0;    ///< of the fastest plan that was found
  double lowerBoundSeconds = 0; ///< no plan of the space is faster
  bool optimal = false;         ///< lower bound = fastest
};

/// plans[0] is the best: of those as fast as the fastest one, within the model's error, the simplest. Then come others
/// of this class, the simplest first, and the fastest of the rest. When plans is empty, `errors` says what is wrong
/// with the input (pins that contradict, a batch that does not divide), or `binding` what does not fit, with
/// `relaxations`.
struct SearchResult {
  std::vector<PricedPlan> plans;
  ModelError error; ///< the problem's
  std::vector<std::string> errors;
  std::string binding;
  PricedPlan nearest; ///< when nothing fits: the plan that needs the least memory
  std::vector<Relaxation> relaxations;
  SearchStatistics statistics;
};

/// Exact under the cost model. Deterministic: same problem, same result, whatever the thread count.
SearchResult search(const Problem &problem, const SearchOptions &options = {});

} // namespace espalier::planner
