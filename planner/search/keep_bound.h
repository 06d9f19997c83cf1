// What the layers of one chunk take at least when what they keep must fit: a Lagrange multiplier turns bytes into
// seconds, kind by kind. Example: of two like layers that keep 4 GB each, or 1 GB for 0.3 s more, in 5 GB: at 0.1 s a
// GB either takes as much either way, and together they take at least 0.3 s more.
#pragma once

#include "planner/search/keep.h"

#include <limits>
#include <vector>

namespace espalier::planner {

class KeepBound {
public:
  /// Of all micro-batches that are held at once, and the largest transient, `capacity` bytes may be kept. `leastPeak`
  /// is the transient of what runs beside the layers.
  KeepBound(const CostTable &costs, const std::vector<LikeLayers> &kinds, int held, double leastPeak, double capacity);

  /// Whether classes chosen for the kinds before `next`, with what these take, keep and need, may become the fastest
  /// choice that fits. Notes ways to go on that fit.
  bool mayBeFastest(size_t next, double seconds, double bytes, double peakBytes);

private:
  /// The kinds from one on when every layer is in the class that is best at a multiplier.
  struct Behind {
    double seconds = 0, bytes = 0, peakBytes = 0;
    double weighed = 0; ///< seconds + multiplier * bytes
  };
  std::vector<Behind> behindAt(double multiplier, bool isRoomy) const;

  const CostTable &costs;
  const std::vector<LikeLayers> &kinds;
  int held;
  double leastPeak, capacity;
  double multiplier = 0;                        ///< seconds for a byte that bound best
  std::vector<std::vector<Behind>> completions; ///< [way to go on][kind], at the multiplier first
  double fastestKnown = std::numeric_limits<double>::infinity();
};

} // namespace espalier::planner
