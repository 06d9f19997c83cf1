// Lagrangian relaxation of the recompute choice of one chunk. A multiplier in seconds per byte replaces the memory
// limit, so that each kind is minimized independently. Example: two equal layers keep 4 GB each, or 1 GB for 0.3 s
// more; 5 GB are free. At 0.1 s per GB both classes cost 0.4 s. Together the layers thus need at least 2 x 0.4 - 0.5 =
// 0.3 s more: one of them recomputes.
#pragma once

#include "planner/search/recompute_choices.h"

#include <vector>

namespace espalier::planner {

/// Lower bounds of partial recompute choices.
class RecomputeBound {
public:
  /// `capacity` bytes hold the kept values, `inFlight` times keptBytes() with the counts of `live`, and the largest
  /// transient. `leastPeak` is the transient of work beside the layers.
  RecomputeBound(const CostTable &costs, const std::vector<LikeLayers> &kinds, const LivePeaks &live, int inFlight,
                 double leastPeak, double capacity);

  /// Whether the best completion of a partial choice may be the fastest that fits. The choice covers the kinds before
  /// `next` and takes the given time, bytes and transient. Completions that fit become the incumbent.
  bool mayBeFastest(size_t next, double seconds, double bytes, double peakBytes);

private:
  /// The kinds from one on, with every layer in its best class at a multiplier.
  struct Completion {
    double seconds = 0, bytes = 0, peakBytes = 0;
    double lagrangian = 0; ///< seconds + multiplier * bytes
  };
  std::vector<Completion> completionsAt(double multiplier, bool keepsMost) const;

  const CostTable &costs;
  const std::vector<LikeLayers> &kinds;
  LivePeaks live;
  int inFlight;
  double leastPeak, capacity;
  double multiplier = 0;                            ///< seconds per byte that give the tightest bound
  std::vector<std::vector<Completion>> completions; ///< [multiplier][kind], the tightest multiplier first
  double incumbent = kInfinity;
};

} // namespace espalier::planner
