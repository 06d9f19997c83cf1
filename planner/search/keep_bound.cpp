#include "planner/search/keep_bound.h"

#include <algorithm>
#include <tuple>

namespace espalier::planner {

// The multiplier is one of those at which some layer may as well change its class: the least at which all fits. What is
// left over there and missing below is what a mixture of both classes would take.
KeepBound::KeepBound(const CostTable &costs, const std::vector<LikeLayers> &kinds, int held, double peak,
                     double capacity)
    : costs(costs), kinds(kinds), held(held), leastPeak(peak), capacity(capacity) {
  std::vector<double> multipliers = {0};
  for (const LikeLayers &like : kinds) {
    const SegmentCost &cost = costs.kinds[like.kind];
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 3; ++i) {
      least = std::min(least, planner::peakBytes(cost, i));
      for (int other = 0; other < 3; ++other) {
        double saved = held * (cost.savedBytes[i] - cost.savedBytes[other]);
        double more = segmentSeconds(cost, other).total() - segmentSeconds(cost, i).total();
        if (saved > 0 && more > 0)
          multipliers.push_back(more / saved);
      }
    }
    leastPeak = std::max(leastPeak, least);
  }
  std::ranges::sort(multipliers);
  auto place = std::ranges::partition_point(
      multipliers, [&](double some) { return behindAt(some, /*isRoomy=*/false)[0].bytes > capacity - leastPeak; });
  multiplier = place == multipliers.end() ? multipliers.back() : *place;
  completions = {behindAt(multiplier, /*isRoomy=*/false), behindAt(multiplier, /*isRoomy=*/true),
                 behindAt(0, /*isRoomy=*/false), behindAt(multipliers.back(), /*isRoomy=*/false)};
}

// Of classes that are equally good the one that keeps most (`isRoomy`) or least.
std::vector<KeepBound::Behind> KeepBound::behindAt(double multiplier, bool isRoomy) const {
  std::vector<Behind> behind(kinds.size() + 1);
  for (size_t kind = kinds.size(); kind-- > 0;) {
    const SegmentCost &cost = costs.kinds[kinds[kind].kind];
    std::tuple<double, double, int> best{std::numeric_limits<double>::infinity(), 0, 0};
    for (int i = 0; i < 3; ++i) {
      double bytes = held * cost.savedBytes[i], weighed = segmentSeconds(cost, i).total() + multiplier * bytes;
      best = std::min(best, {weighed, isRoomy ? -bytes : bytes, i});
    }
    auto [weighed, unused, i] = best;
    auto layers = static_cast<double>(kinds[kind].chunks.size());
    behind[kind] = behind[kind + 1];
    behind[kind].seconds += layers * segmentSeconds(cost, i).total();
    behind[kind].bytes += layers * held * cost.savedBytes[i];
    behind[kind].weighed += layers * weighed;
    behind[kind].peakBytes = std::max(behind[kind].peakBytes, planner::peakBytes(cost, i));
  }
  return behind;
}

bool KeepBound::mayBeFastest(size_t next, double seconds, double bytes, double peakBytes) {
  for (const std::vector<Behind> &behind : completions)
    if (bytes + behind[next].bytes + std::max(peakBytes, behind[next].peakBytes) <= capacity)
      fastestKnown = std::min(fastestKnown, seconds + behind[next].seconds);
  double over = bytes + std::max(peakBytes, leastPeak) - capacity;
  return seconds + completions[0][next].weighed + multiplier * over <= fastestKnown * (1 + 1e-9);
}

} // namespace espalier::planner
