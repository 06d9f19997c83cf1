#include "planner/search/boundaries.h"

namespace espalier::planner {

Boundaries::Boundaries(StageChoices &choices, int stages, int layers)
    : choices(choices), stages(stages), layers(layers) {
  for (int stage = 0; stage < stages; ++stage)
    allFewest += fewestOf.emplace_back(choices.fewest(stage));
}

// The largest number that is within, from `least` to `most`; -1 when there is none. All below it are within, too.
template <typename Within> int Boundaries::longest(int least, int most, Within within) {
  if (most < least || !within(least))
    return -1;
  while (least < most) {
    int middle = least + (most - least + 1) / 2;
    if (within(middle))
      least = middle;
    else
      most = middle - 1;
  }
  return least;
}

bool Boundaries::narrow(double target) {
  std::vector<int> low(stages + 1, layers), high(stages + 1, 0);
  int above = 0, behind = allFewest; // stages' fewest layers
  for (int stage = 0; stage < stages; ++stage) {
    behind -= fewestOf[stage];
    int most = choices.isGiven() ? fewestOf[stage] : layers - behind - high[stage];
    auto within = [&](int count) { return choices.alone(stage, high[stage], count, target) <= target; };
    int count = longest(fewestOf[stage], most, within);
    if (count < 0)
      return false;
    high[stage + 1] = high[stage] + count;
    above += fewestOf[stage];
  }
  if (high[stages] < layers)
    return false;
  for (int stage = stages - 1; stage > 0; --stage) {
    above -= fewestOf[stage];
    int most = choices.isGiven() ? fewestOf[stage] : low[stage + 1] - above;
    auto within = [&](int count) { return choices.alone(stage, low[stage + 1] - count, count, target) <= target; };
    int count = longest(fewestOf[stage], most, within);
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

void Boundaries::findMost(double target) {
  mostOf.assign(stages, {});
  for (int stage = 0; stage < stages; ++stage)
    for (int first = from[stage]; first <= to[stage]; ++first) {
      int most = choices.isGiven() ? fewestOf[stage] : to[stage + 1] - first;
      auto within = [&](int count) { return choices.alone(stage, first, count, target) <= target; };
      mostOf[stage].push_back(longest(least(stage, first), most, within));
    }
}

} // namespace espalier::planner
