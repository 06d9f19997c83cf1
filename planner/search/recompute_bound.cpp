#include "planner/search/recompute_bound.h"

#include <algorithm>
#include <tuple>

namespace espalier::planner {

// The bound is tightest at the least multiplier at which everything fits. At that multiplier some layer is indifferent
// between two classes. Hence only ratios of seconds to bytes between two classes are tried.
RecomputeBound::RecomputeBound(const CostTable &costs, const std::vector<LikeLayers> &kinds, const LivePeaks &live,
                               int inFlight, double peak, double capacity)
    : costs(costs), kinds(kinds), live(live), inFlight(inFlight), leastPeak(peak), capacity(capacity) {
  std::vector<double> multipliers = {0};
  for (const LikeLayers &like : kinds) {
    const SegmentCost &cost = costs.kinds[like.kind];
    double least = kInfinity;
    for (Recompute i : kRecomputes) {
      least = std::min(least, planner::peakBytes(cost, i));
      for (Recompute other : kRecomputes) {
        double saved = inFlight * (keptBytes(cost, i, live) - keptBytes(cost, other, live));
        double more = segmentSeconds(cost, other).total() - segmentSeconds(cost, i).total();
        if (saved > 0 && more > 0)
          multipliers.push_back(more / saved);
      }
    }
    leastPeak = std::max(leastPeak, least);
  }
  std::ranges::sort(multipliers);
  auto place = std::ranges::partition_point(multipliers, [&](double some) {
    return completionsAt(some, /*keepsMost=*/false)[0].bytes > capacity - leastPeak;
  });
  multiplier = place == multipliers.end() ? multipliers.back() : *place;
  completions = {completionsAt(multiplier, /*keepsMost=*/false), completionsAt(multiplier, /*keepsMost=*/true),
                 completionsAt(0, /*keepsMost=*/false), completionsAt(multipliers.back(), /*keepsMost=*/false)};
}

// If classes are equally good, takes the one that keeps most or least.
std::vector<RecomputeBound::Completion> RecomputeBound::completionsAt(double multiplier, bool keepsMost) const {
  std::vector<Completion> after(kinds.size() + 1);
  for (size_t kind = kinds.size(); kind-- > 0;) {
    const SegmentCost &cost = costs.kinds[kinds[kind].kind];
    std::tuple<double, double, Recompute> best{kInfinity, 0, Recompute::None};
    for (Recompute i : kRecomputes) {
      double bytes = inFlight * keptBytes(cost, i, live),
             lagrangian = segmentSeconds(cost, i).total() + multiplier * bytes;
      best = std::min(best, {lagrangian, keepsMost ? -bytes : bytes, i});
    }
    auto [lagrangian, unused, i] = best;
    auto layers = static_cast<double>(kinds[kind].chunks.size());
    after[kind] = after[kind + 1];
    after[kind].seconds += layers * segmentSeconds(cost, i).total();
    after[kind].bytes += layers * inFlight * keptBytes(cost, i, live);
    after[kind].lagrangian += layers * lagrangian;
    after[kind].peakBytes = std::max(after[kind].peakBytes, planner::peakBytes(cost, i));
  }
  return after;
}

bool RecomputeBound::mayBeFastest(size_t next, double seconds, double bytes, double peakBytes) {
  for (const std::vector<Completion> &after : completions)
    if (bytes + after[next].bytes + std::max(peakBytes, after[next].peakBytes) <= capacity)
      incumbent = std::min(incumbent, seconds + after[next].seconds);
  double over = bytes + std::max(peakBytes, leastPeak) - capacity;
  return seconds + completions[0][next].lagrangian + multiplier * over <= incumbent * (1 + 1e-9);
}

} // namespace espalier::planner
