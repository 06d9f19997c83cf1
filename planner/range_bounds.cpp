#include "planner/range_bounds.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace espalier::planner {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1 + 1e-9;

// What a layer takes at least, whatever it keeps: where activations are offloaded, forward is the longer the more that
// is.
ChunkSeconds leastSeconds(const SegmentCost &layer, const std::optional<Recompute> &pinned) {
  ChunkSeconds least = segmentSeconds(layer, static_cast<int>(pinned.value_or(Recompute::None)));
  for (int kept = 0; kept < 3 && !pinned; ++kept) {
    ChunkSeconds other = segmentSeconds(layer, kept);
    least = {std::min(least.forward, other.forward), std::min(least.backward, other.backward),
             std::min(least.weight, other.weight)};
  }
  return least;
}

} // namespace

RangeBounds::RangeBounds(const Problem &problem, const StageOptions &options, const ChunkPlayer &player)
    : player(player), splits(splitsBackward(options.axes().schedule)),
      microBatches(static_cast<double>(options.axes().microBatches)), before(1), totals(1), steps(1) {
  const CostTable &costs = options.table();
  double shortest = kInfinity;
  for (int kind : costs.layerKinds) {
    ChunkSeconds least = leastSeconds(costs.kinds[kind], problem.pins.recompute);
    before.push_back(before.back() + least);
    totals.push_back(before.back().total());
    steps.push_back(steps.back() + costs.kinds[kind].step.total());
    shortest = std::min(shortest, least.total());
  }
  int chunks = static_cast<int>(player.edges().size()), stages = options.axes().pp;
  edgeSteps.resize(chunks);
  edgeSteps.front() += costs.embed.step.total();
  edgeSteps.back() += costs.head.step.total();
  fewest.assign(chunks, 1);
  if (chunks > stages) {
    fewest.front() = problem.embed < 0;
    fewest.back() = problem.head < 0;
  }
  fewestBefore.push_back(0);
  std::vector<int> ofStage(stages);
  for (int i = 0; i < chunks; ++i) {
    fewestBefore.push_back(fewestBefore.back() + fewest[i]);
    ofStage[player.stageOf(i)] += fewest[i];
  }
  for (int i = 0; i < chunks; ++i)
    otherSeconds.push_back((ofStage[player.stageOf(i)] - fewest[i]) * shortest);
  mostSeconds.assign(chunks, kInfinity);
}

ChainMean RangeBounds::chainOf(const Chain &chain) const {
  ChainMean one;
  for (const std::array<int, 3> &times : chain.times)
    one.times.push_back({static_cast<double>(times[0]), static_cast<double>(times[1]),
                         static_cast<double>(times[2] + (splits ? 0 : times[1]))});
  one.ends.assign(player.waits().size(), 0);
  one.ends[chain.lastStage] = 1;
  return one;
}

ChainMean RangeBounds::meanOf(std::span<const ChainMean> chains, std::span<const double> weights) {
  ChainMean mean{std::vector<std::array<double, 3>>(chains[0].times.size()),
                 std::vector<double>(chains[0].ends.size())};
  for (size_t i = 0; i < chains.size(); ++i) {
    for (size_t chunk = 0; chunk < mean.times.size(); ++chunk)
      for (int kind = 0; kind < 3; ++kind)
        mean.times[chunk][kind] += weights[i] * chains[i].times[chunk][kind];
    for (size_t stage = 0; stage < mean.ends.size(); ++stage)
      mean.ends[stage] += weights[i] * chains[i].ends[stage];
  }
  return mean;
}

// Behind the last layer of a chunk whose layers may take so long.
int RangeBounds::end(int position, int first, double most) const {
  auto behind = std::upper_bound(totals.begin() + first, totals.end(), totals[first] + most);
  return static_cast<int>(behind - totals.begin()) - 1;
}

bool RangeBounds::narrow(double seconds) {
  for (int i = 0; i < chunks(); ++i) {
    int stage = player.stageOf(i);
    mostSeconds[i] = (seconds * kRounding - player.waits()[stage]) / microBatches - player.stageEdges()[stage] -
                     otherSeconds[i] * (1 - 1e-9);
    if (mostSeconds[i] < 0)
      return false;
  }
  std::vector<int> from(chunks() + 1), to(chunks() + 1);
  for (int i = 0; i < chunks(); ++i)
    to[i + 1] = std::min(end(i, to[i], mostSeconds[i]), layers() - (fewestBefore.back() - fewestBefore[i + 1]));
  if (to.back() < layers())
    return false;
  from.back() = layers();
  for (int i = chunks() - 1; i >= 0; --i) {
    int low = fewestBefore[i], high = std::min(from[i + 1] - fewest[i], to[i]);
    if (high < low || end(i, high, mostSeconds[i]) < from[i + 1])
      return false;
    while (low < high) { // the end does not come earlier when the start comes later
      int middle = low + (high - low) / 2;
      if (end(i, middle, mostSeconds[i]) >= from[i + 1])
        high = middle;
      else
        low = middle + 1;
    }
    from[i] = low;
  }
  if (from[0] > 0)
    return false;
  changed += from != earliest || to != latest;
  earliest = std::move(from);
  latest = std::move(to);
  return true;
}

std::pair<int, int> RangeBounds::counts(int position, int first) const {
  int last = std::min(end(position, first, mostSeconds[position]), latest[position + 1]);
  return {std::max(fewest[position], earliest[position + 1] - first), last - first};
}

ChunkSeconds RangeBounds::least(int first, int count) const {
  const ChunkSeconds &from = before[first], &to = before[first + count];
  return {to.forward - from.forward, to.backward - from.backward, to.weight - from.weight};
}

double RangeBounds::seconds(const ChainMean &chain, int position, int first, int count) const {
  ChunkSeconds chunk = least(first, count) + player.edges()[position];
  const std::array<double, 3> &times = chain.times[position];
  return times[0] * chunk.forward + times[1] * chunk.backward + times[2] * chunk.weight +
         chain.ends[player.stageOf(position)] * leastStep(position, first, count);
}

double RangeBounds::leastStep(int position, int first, int count) const {
  return steps[first + count] - steps[first] + edgeSteps[position];
}

RangeBounds::Rest RangeBounds::rest(const ChainMean &chain) const {
  Rest rest;
  rest.lowest = earliest;
  for (int i = 0; i <= chunks(); ++i)
    rest.seconds.emplace_back(latest[i] - earliest[i] + 1, kInfinity);
  rest.seconds.back().front() = 0;
  for (int i = chunks() - 1; i >= 0; --i)
    for (int first = earliest[i]; first <= latest[i]; ++first) {
      double &here = rest.seconds[i][first - earliest[i]];
      auto [least, most] = counts(i, first);
      for (int count = least; count <= most; ++count)
        here = std::min(here, seconds(chain, i, first, count) + rest.from(i + 1, first + count));
    }
  return rest;
}

int64_t RangeBounds::work() const {
  int64_t sum = 0;
  for (int i = 0; i < chunks(); ++i)
    for (int first = earliest[i]; first <= latest[i]; ++first) {
      auto [least, most] = counts(i, first);
      sum += std::max(most - least + 1, 0);
    }
  return sum;
}

std::vector<int> RangeBounds::shortest(const ChainMean &chain, const Rest &rest) const {
  std::vector<int> split;
  for (int i = 0, first = 0; i < chunks(); first += split[i++]) {
    double least = kInfinity;
    auto [low, high] = counts(i, first);
    for (int count = low; count <= high; ++count)
      if (double all = seconds(chain, i, first, count) + rest.from(i + 1, first + count); all < least) {
        least = all;
        split.resize(i);
        split.push_back(count);
      }
  }
  return split;
}

std::vector<int> RangeBounds::balanced() const {
  double low = 0, high = totals.back();
  for (const ChunkSeconds &edge : player.edges())
    high += edge.total();
  std::vector<int> best;
  for (int i = 0; i < 50; ++i) {
    double most = best.empty() ? high : (low + high) / 2;
    std::vector<int> split;
    int first = 0;
    for (int chunk = 0; chunk < chunks(); ++chunk) {
      int last = end(chunk, first, std::max(0.0, most - player.edges()[chunk].total()));
      last = std::clamp(last, first + fewest[chunk], layers() - (fewestBefore.back() - fewestBefore[chunk + 1]));
      split.push_back(last - first);
      first = last;
    }
    (first == layers() ? high : low) = most;
    if (first == layers())
      best = std::move(split);
  }
  return best;
}

} // namespace espalier::planner
