// Where the layers of each stage may begin under a target: so that the stages above and those below can each end by it
// alone, whatever the others have.
#pragma once

#include "planner/search/stage_choices.h"

#include <algorithm>
#include <vector>

namespace espalier::planner {

class Boundaries {
public:
  /// `choices` must outlive this.
  Boundaries(StageChoices &choices, int stages, int layers);

  /// Narrows them to a target; false, and as they were, when nothing is left. A part of a range takes no longer than
  /// the range, so the longest ranges from both ends tell.
  bool narrow(double target);

  /// Finds what most() says, under the target that they were narrowed to.
  void findMost(double target);

  int lowest(int stage) const { return from[stage]; }
  int highest(int stage) const { return to[stage]; }
  size_t width(int stage) const { return to[stage] - from[stage] + 1; }

  /// Layers that a stage has at least, and those that it may have at least and at most where they begin at `first`.
  int fewest(int stage) const { return fewestOf[stage]; }
  int fewest() const { return allFewest; } ///< of all stages
  int least(int stage, int first) const { return std::max(fewestOf[stage], from[stage + 1] - first); }
  int most(int stage, int first) const { return mostOf[stage][first - from[stage]]; }

private:
  template <typename Within> static int longest(int least, int most, Within within);

  StageChoices &choices;
  int stages, layers, allFewest = 0;
  std::vector<int> fewestOf;            // per stage
  std::vector<int> from, to;            // the first layer of each stage, lowest and highest
  std::vector<std::vector<int>> mostOf; // [stage][first - lowest]
};

} // namespace espalier::planner
