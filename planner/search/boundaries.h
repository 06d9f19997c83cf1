// Domains of the boundaries between stages: where the layers of each stage may begin so that the stages above it, and
// it with those below, can each alone end by a target. Example: 12 like layers on 3 stages of which each ends by the
// target with at most 5: the second stage begins at layer 2 to 5, the third at 7 to 10.
#pragma once

#include "planner/search/stage_ranges.h"

#include <algorithm>
#include <vector>

namespace espalier::planner {

class Boundaries {
public:
  /// `ranges` must outlive this.
  Boundaries(StageRanges &ranges, int stages, int layers);

  /// Narrows the domains to a target; false, and as they were, when one is empty. A part of a range takes no longer
  /// than the range, so the longest ranges from both ends tell.
  bool narrow(double target);

  /// Tabulates mostLayers() under the target that they were narrowed to.
  void tabulateMost(double target);

  int lowest(int stage) const { return from[stage]; }
  int highest(int stage) const { return to[stage]; }
  size_t width(int stage) const { return to[stage] - from[stage] + 1; }

  /// Layers that a stage whose layers begin at `first` may have, at least and at most.
  int leastLayers(int stage, int first) const { return std::max(fewest[stage], from[stage + 1] - first); }
  int mostLayers(int stage, int first) const { return most[stage][first - from[stage]]; }

private:
  int longest(int stage, int least, int limit, bool endsAt, int border, double target);

  StageRanges &ranges;
  int stages, layers, fewestInAll = 0;
  std::vector<int> fewest;            // layers of each stage
  std::vector<int> from, to;          // the first layer of each stage, lowest and highest
  std::vector<std::vector<int>> most; // [stage][first - lowest]
};

} // namespace espalier::planner
