// The search: finds the best plan of the whole space under the cost model, with a certificate. If no plan fits,
// reports the binding limit.
#pragma once

#include "planner/price.h"

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace espalier::planner {

/// Options of the search.
struct SearchOptions {
  bool all = false;     ///< also consider plans that the executor cannot run yet
  int alternatives = 5; ///< best plans of other kinds to report, at most two of one family (simplicity.h)
  int threads = 1;      ///< the result does not depend on it
  /// Examine every candidate whose lower bound is below the best plan. Otherwise examine only the most promising ones
  /// and return early with the remaining gap.
  bool prove = true;
  /// Return the simplest of the plans that are at most `Problem::preferSimple` slower than the fastest one. Otherwise
  /// return the fastest plan.
  bool simplest = true;
  /// Only search for plans below this step time. Candidates whose bounds are above it are never examined.
  double belowSeconds = std::numeric_limits<double>::infinity();
  bool diagnose = true; ///< when nothing fits, report the binding limit
  bool relax = true;    ///< ... and the smallest relaxations
};

/// A change to the problem that lets a plan fit.
struct Relaxation {
  std::string change;   ///< for people: `recompute=full`, `devices=64`, ...
  double needBytes = 0; ///< of the fullest stage with the change
};

/// A gap between a step and its lower bound that the answer explains.
inline constexpr double kWideGap = 0.03;

/// Size of the search and its certificate.
struct SearchStatistics {
  double space = 0;      ///< plans in the space, at most 1e300
  int64_t configs = 0;   ///< splits of the devices and the batch, without schedules
  int64_t tooLarge = 0;  ///< of them: those whose state alone does not fit
  int64_t examined = 0;  ///< configs with a schedule whose layers were laid out; bounds rule out the rest
  int64_t evaluated = 0; ///< plans whose pipeline was played
  double seconds = 0;
  double fastestSeconds = 0;    ///< step of the fastest plan found
  double lowerBoundSeconds = 0; ///< no plan of the space is faster
  bool optimal = false;         ///< lower bound = fastest
  /// Returns how much faster a plan may be that the search has not ruled out.
  double gap() const { return optimal || fastestSeconds <= 0 ? 0 : 1 - lowerBoundSeconds / fastestSeconds; }
};

/// The result of a search. plans[0] is the answer: the simplest of the plans that are at most `Problem::preferSimple`
/// slower than the fastest one. Other plans follow by ascending time. If `plans` is empty, either `errors` lists faults
/// of the input (conflicting pins, an indivisible batch), or `binding` names the limit and `relaxations` the changes
/// that would let a plan fit.
struct SearchResult {
  std::vector<PricedPlan> plans;
  ModelError error;        ///< the problem's
  double preferSimple = 0; ///< the problem's
  /// The fastest plan found that is simpler than the answer. It is slower than the limit, and at most a quarter slower
  /// than the fastest plan.
  std::optional<PricedPlan> simpler;
  std::vector<std::string> errors;
  std::string binding;
  PricedPlan nearest; ///< when nothing fits: the plan that needs the least memory
  std::vector<Relaxation> relaxations;
  SearchStatistics statistics;
  /// The fastest plan of plain 1F1B, with its own certificate. Set if the search leaves a gap above kWideGap, which
  /// means unequal layers on several chunks.
  std::optional<PricedPlan> plain;
  SearchStatistics plainStatistics;
};

/// Searches for the best plan. Exact under the cost model. Deterministic: the result does not depend on the thread
/// count.
SearchResult search(const Problem &problem, const SearchOptions &options = {});

} // namespace espalier::planner
