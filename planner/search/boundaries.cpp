#include "planner/search/boundaries.h"

namespace espalier::planner {

Boundaries::Boundaries(StageRanges &ranges, int stages, int layers) : ranges(ranges), stages(stages), layers(layers) {
  for (int stage = 0; stage < stages; ++stage)
    fewestInAll += fewest.emplace_back(ranges.fewestLayers(stage));
}

// Returns the most layers, from `least` to `limit`, of a stage that begins (or ends) at `border` and ends by `target`;
// -1 if there are none. Fewer layers never take longer, so that bisection finds it.
int Boundaries::longest(int stage, int least, int limit, bool endsAt, int border, double target) {
  auto ends = [&](int count) {
    return ranges.stageBound(stage, endsAt ? border - count : border, count, target) <= target;
  };
  if (ranges.arePinned())
    limit = fewest[stage];
  if (limit < least || !ends(least))
    return -1;
  while (least < limit) {
    int middle = least + (limit - least + 1) / 2;
    if (ends(middle))
      least = middle;
    else
      limit = middle - 1;
  }
  return least;
}

bool Boundaries::narrow(double target) {
  std::vector<int> low(stages + 1, layers), high(stages + 1, 0);
  int above = 0, below = fewestInAll; // least layers of the other stages
  for (int stage = 0; stage < stages; ++stage) {
    below -= fewest[stage];
    int count = longest(stage, fewest[stage], layers - below - high[stage], /*endsAt=*/false, high[stage], target);
    if (count < 0)
      return false;
    high[stage + 1] = high[stage] + count;
    above += fewest[stage];
  }
  if (high[stages] < layers)
    return false;
  for (int stage = stages - 1; stage > 0; --stage) {
    above -= fewest[stage];
    int count = longest(stage, fewest[stage], low[stage + 1] - above, /*endsAt=*/true, low[stage + 1], target);
    if (count < 0)
      return false;
    low[stage] = low[stage + 1] - count;
  }
  low[0] = 0;
  for (int stage = 0; stage <= stages; ++stage)
    if (low[stage] > high[stage])
      return false;
  from = std::move(low);
  to = std::move(high);
  return true;
}

void Boundaries::tabulateMost(double target) {
  most.assign(stages, {});
  for (int stage = 0; stage < stages; ++stage)
    for (int first = from[stage]; first <= to[stage]; ++first)
      most[stage].push_back(
          longest(stage, leastLayers(stage, first), to[stage + 1] - first, /*endsAt=*/false, first, target));
}

} // namespace espalier::planner
