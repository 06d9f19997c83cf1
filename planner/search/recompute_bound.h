// Lagrangian relaxation of what the layers of one chunk keep: the limit of memory becomes a cost, a multiplier in
// seconds for each byte, so that each kind is minimized alone. Example: two like layers keep 4 GB each, or 1 GB for 0.3
// s more; 5 GB are free. At 0.1 s for a GB each costs 0.4 s either way, so that together they take at least 2 x 0.4 -
// 0.5 = 0.3 s more: one of them recomputes.
#pragma once

#include "planner/search/recompute_choices.h"

#include <limits>
#include <vector>

namespace espalier::planner {

class RecomputeBound {
public:
  /// What `inFlight` micro-batches keep and the largest transient share `capacity` bytes. `leastPeak` is the transient
  /// of what runs beside the layers.
  RecomputeBound(const CostTable &costs, const std::vector<LikeLayers> &kinds, int inFlight, double leastPeak,
                 double capacity);

  /// Whether a choice for the kinds before `next`, with its time, bytes and transient, may be completed to the fastest
  /// one that fits: false where its bound is above the incumbent. Completions that fit become the incumbent.
  bool mayBeFastest(size_t next, double seconds, double bytes, double peakBytes);

private:
  /// The kinds from one on when every layer is in the class that is best at a multiplier.
  struct Completion {
    double seconds = 0, bytes = 0, peakBytes = 0;
    double lagrangian = 0; ///< seconds + multiplier * bytes
  };
  std::vector<Completion> completionsAt(double multiplier, bool keepsMost) const;

  const CostTable &costs;
  const std::vector<LikeLayers> &kinds;
  int inFlight;
  double leastPeak, capacity;
  double multiplier = 0;                            ///< seconds for a byte, which give the tightest bound
  std::vector<std::vector<Completion>> completions; ///< [multiplier][kind], at the tightest one first
  double incumbent = std::numeric_limits<double>::infinity();
};

} // namespace espalier::planner
