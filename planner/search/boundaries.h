// Domains of the boundaries between stages. The first layer of a stage is restricted so that the stages above, and the
// stage with those below, can each alone end by a target. Example: 12 equal layers on 3 stages, and at most 5 layers
// end by the target. The second stage then begins at layer 2 to 5, and the third at 7 to 10.
#pragma once

#include "planner/search/stage_ranges.h"

#include <algorithm>
#include <vector>

namespace espalier::planner {

/// The possible first layers of each stage under a target.
class Boundaries {
public:
  /// `ranges` must outlive this.
  Boundaries(StageRanges &ranges, int stages, int layers);

  /// Narrows the domains to a target. Returns false and leaves them unchanged if one becomes empty. A subrange never
  /// takes longer than its range, so that only the longest ranges from both ends are tested.
  bool narrow(double target);

  /// Tabulates mostLayers() under the target of the last narrow().
  void tabulateMost(double target);

  /// The lowest and the highest first layer of a stage.
  int lowest(int stage) const { return from[stage]; }
  int highest(int stage) const { return to[stage]; }
  /// Number of possible first layers of a stage.
  size_t width(int stage) const { return to[stage] - from[stage] + 1; }

  /// The fewest and the most layers of a stage whose layers begin at `first`.
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
