#include "planner/search/range_bounds.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace espalier::planner {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1 + 1e-9;
constexpr int kPriceSteps = 24; // of a search for the best price of a byte

} // namespace

RangeBounds::RangeBounds(const Problem &problem, const StageOptions &options, const ChunkPlayer &player)
    : problem(problem), options(options), costs(options.table()), axes(options.axes()), player(player),
      splits(splitsBackward(axes.schedule)), microBatches(static_cast<double>(axes.microBatches)), free(axes.pp),
      totals(1) {
  readKinds(problem.pins.recompute);
  double shortest = kInfinity;
  for (int kind : costs.layerKinds) {
    double least = kInfinity;
    for (const Kept &kept : kinds[kind].classes)
      least = std::min(least, kept.seconds.total());
    totals.push_back(totals.back() + least);
    shortest = std::min(shortest, least);
  }
  int chunks = static_cast<int>(player.edges().size()), stages = axes.pp;
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

void RangeBounds::readKinds(const std::optional<Recompute> &pinned) {
  for (const SegmentCost &cost : costs.kinds) {
    Kind &kind = kinds.emplace_back();
    kind.stepSeconds = cost.step.total();
    kind.stateBytes = stateBytes(cost);
    kind.transientBytes = axes.offloadActivations ? 0 : kInfinity;
    for (int kept = 0; kept < 3; ++kept)
      if (!pinned || kept == static_cast<int>(*pinned)) {
        kind.classes.push_back({segmentSeconds(cost, kept), cost.savedBytes[kept]});
        kind.transientBytes = std::min(kind.transientBytes, peakBytes(cost, kept));
      }
  }
}

// Buffers are left out: rooms are never too small.
void RangeBounds::readRoom() {
  bool areElsewhere = axes.offloadActivations;
  std::shared_ptr<const std::vector<HeldChunks>> held = options.mostHeld();
  int last = chunks() - 1;
  for (int stage = 0; stage < axes.pp; ++stage) {
    Room &room = rooms.emplace_back(Room{(*held)[stage], {}});
    double bytes =
        areElsewhere ? problem.machine.hostShareBytes() : problem.machine.memoryBytes - problem.machine.reservedBytes;
    if (player.stageOf(0) == stage)
      bytes -= stateBytes(costs.embed);
    if (player.stageOf(last) == stage)
      bytes -= stateBytes(costs.head);
    if (player.stageOf(0) == player.stageOf(last) && problem.tiedEmbedding) // one of them is free
      bytes += stateBytes(costs.head);
    for (const std::vector<int> &moment : room.held) {
      double ends = 0;
      for (size_t chunk = 0; chunk < moment.size() && !areElsewhere; ++chunk) {
        int i = player.position(stage, static_cast<int>(chunk));
        bool readsInputs = costs.layersReadInputs || i == 0 || i == last;
        ends += moment[chunk] * ((readsInputs ? costs.inputBytes : 0) + (i == 0 ? costs.embed.savedBytes[0] : 0) +
                                 (i == last ? costs.head.savedBytes[0] : 0));
      }
      room.bytes.push_back((bytes - ends) * kRounding);
    }
    free[stage].resize(room.held.size());
  }
}

// In the memory where layers keep values.
double RangeBounds::stateBytes(const SegmentCost &cost) const {
  bool areParametersHere = cost.keepsParametersOnDevice() != axes.offloadActivations;
  bool isOptimizerHere = cost.keepsOptimizerOnDevice() != axes.offloadActivations;
  return (areParametersHere ? cost.parameterBytes + cost.gradientBytes : 0) +
         (isOptimizerHere ? cost.optimizerBytes : 0);
}

ChainMean RangeBounds::chainOf(const Chain &chain) const {
  ChainMean one;
  for (const std::array<int, 3> &times : chain.times)
    one.times.push_back({static_cast<double>(times[0]), static_cast<double>(times[1]),
                         static_cast<double>(times[2] + (splits ? 0 : times[1]))});
  one.ends.assign(axes.pp, 0);
  one.ends[chain.lastStage] = 1;
  return one;
}

ChainMean RangeBounds::meanOf(std::span<const ChainMean> chains, std::span<const double> weights) const {
  ChainMean mean;
  mean.times.resize(chunks());
  mean.ends.resize(axes.pp);
  for (size_t i = 0; i < chains.size(); ++i) {
    for (size_t chunk = 0; chunk < mean.times.size(); ++chunk)
      for (int kind = 0; kind < 3; ++kind)
        mean.times[chunk][kind] += weights[i] * chains[i].times[chunk][kind];
    for (size_t stage = 0; stage < mean.ends.size(); ++stage)
      mean.ends[stage] += weights[i] * chains[i].ends[stage];
  }
  return mean;
}

namespace {

double weighed(const std::array<double, 3> &times, const ChunkSeconds &seconds) {
  return times[0] * seconds.forward + times[1] * seconds.backward + times[2] * seconds.weight;
}

} // namespace

const RangeBounds::Kept &RangeBounds::leastOf(const Kind &kind, const std::array<double, 3> &times,
                                              double price) const {
  if (price == 0 && !axes.offloadActivations)
    return kind.classes.front(); // what repeats least
  return *std::ranges::min_element(kind.classes, {},
                                   [&](const Kept &kept) { return weighed(times, kept.seconds) + price * kept.bytes; });
}

BytePrices RangeBounds::prices(BytePrices shares, double seconds) const {
  for (size_t stage = 0; stage < shares.size(); ++stage)
    for (size_t moment = 0; moment < shares[stage].size(); ++moment)
      shares[stage][moment] *= seconds / std::max(rooms[stage].bytes[moment], 1.0);
  return shares;
}

// What a byte counts that a chunk keeps of each micro-batch.
double RangeBounds::heldPrice(int stage, int chunk, const BytePrices &prices) const {
  double price = 0;
  for (size_t moment = 0; moment < prices[stage].size(); ++moment)
    price += prices[stage][moment] * rooms[stage].held[moment][chunk];
  return price;
}

void RangeBounds::tabulate(ChainMean &mean, const BytePrices &prices) const {
  mean.before.resize(chunks());
  mean.edges.resize(chunks());
  std::vector<double> ofKind(kinds.size());
  for (int stage = 0; stage < axes.pp; ++stage) {
    double roomPrice = 0, statePrice = 0;
    for (size_t moment = 0; moment < prices[stage].size(); ++moment) {
      statePrice += prices[stage][moment];
      roomPrice += prices[stage][moment] * rooms[stage].bytes[moment];
    }
    for (int chunk = 0; chunk < chunks() / axes.pp; ++chunk) {
      int i = player.position(stage, chunk);
      double price = heldPrice(stage, chunk, prices);
      for (size_t kind = 0; kind < kinds.size(); ++kind) {
        const Kept &kept = leastOf(kinds[kind], mean.times[i], price);
        ofKind[kind] = weighed(mean.times[i], kept.seconds) + price * kept.bytes +
                       mean.ends[stage] * kinds[kind].stepSeconds + statePrice * kinds[kind].stateBytes;
      }
      std::vector<double> &before = mean.before[i];
      before.assign(costs.layerKinds.size() + 1, 0);
      for (size_t layer = 0; layer < costs.layerKinds.size(); ++layer)
        before[layer + 1] = before[layer] + ofKind[costs.layerKinds[layer]];
      mean.edges[i] =
          weighed(mean.times[i], player.edges()[i]) + mean.ends[stage] * edgeSteps[i] - (chunk == 0 ? roomPrice : 0);
    }
  }
}

LaidLayers RangeBounds::lay(const ChainMean &mean, const BytePrices &prices, const std::vector<int> &counts) const {
  LaidLayers laid{player.edges(), std::vector<double>(axes.pp), prices};
  std::vector<std::vector<double>> bytes = free;
  for (int i = 0, layer = 0; i < chunks(); ++i) {
    int stage = player.stageOf(i), chunk = i / axes.pp; // the first of every stage come first
    laid.steps[stage] += edgeSteps[i];
    double price = heldPrice(stage, chunk, prices);
    for (int end = layer + counts[i]; layer < end; ++layer) {
      const Kind &kind = kinds[costs.layerKinds[layer]];
      const Kept &kept = leastOf(kind, mean.times[i], price);
      laid.seconds[i] = laid.seconds[i] + kept.seconds;
      laid.steps[stage] += kind.stepSeconds;
      for (size_t moment = 0; moment < bytes[stage].size(); ++moment)
        bytes[stage][moment] += kind.stateBytes + rooms[stage].held[moment][chunk] * kept.bytes;
    }
  }
  for (int stage = 0; stage < axes.pp; ++stage)
    for (size_t moment = 0; moment < bytes[stage].size(); ++moment)
      laid.over[stage][moment] = bytes[stage][moment] / std::max(rooms[stage].bytes[moment], 1.0) - 1;
  return laid;
}

double RangeBounds::seconds(const ChainMean &chain, const LaidLayers &laid) const {
  double sum = 0;
  for (int i = 0; i < chunks(); ++i)
    sum += weighed(chain.times[i], laid.seconds[i]);
  for (int stage = 0; stage < axes.pp; ++stage)
    sum += chain.ends[stage] * laid.steps[stage];
  return sum;
}

double RangeBounds::seconds(const ChainMean &chain, int stage, const ChunkOption &option) const {
  double sum = chain.ends[stage] * option.stepSeconds;
  for (size_t chunk = 0; chunk < option.seconds.size(); ++chunk) {
    int i = player.position(stage, static_cast<int>(chunk));
    sum += weighed(chain.times[i], option.seconds[chunk] + player.edges()[i]);
  }
  return sum;
}

RangeBounds::Priced RangeBounds::priceOn(const ChainMean &chain, int stage, std::span<const LayerRange> ranges,
                                         size_t moment, double price) const {
  const Room &room = rooms[stage];
  double transient = 0;
  Priced sum{0, -room.bytes[moment]};
  for (size_t chunk = 0; chunk < ranges.size(); ++chunk) {
    int i = player.position(stage, static_cast<int>(chunk)), held = room.held[moment][chunk];
    sum.seconds += weighed(chain.times[i], player.edges()[i]) + chain.ends[stage] * edgeSteps[i];
    for (int layer = 0; layer < ranges[chunk].count; ++layer) {
      const Kind &kind = kinds[costs.layerKinds[ranges[chunk].first + layer]];
      const Kept &kept = leastOf(kind, chain.times[i], price * held);
      sum.seconds += weighed(chain.times[i], kept.seconds) + chain.ends[stage] * kind.stepSeconds;
      sum.over += kind.stateBytes + held * kept.bytes;
      transient = std::max(transient, kind.transientBytes);
    }
  }
  sum.over += transient;
  sum.seconds += price * sum.over;
  return sum;
}

// Under a price that is too low more is held than there is room for: the best is between that and one that is not.
double RangeBounds::leastOn(const ChainMean &chain, int stage, std::span<const LayerRange> ranges) const {
  double least = 0;
  for (size_t moment = 0; moment < rooms[stage].held.size(); ++moment) {
    Priced free = priceOn(chain, stage, ranges, moment, 0);
    least = std::max(least, free.seconds);
    double low = 0, high = kInfinity, start = free.seconds / std::max(rooms[stage].bytes[moment], 1.0);
    for (int i = 0; i < kPriceSteps && free.over > 0; ++i) {
      double price = high < kInfinity ? (low + high) / 2 : std::max(4 * low, start);
      Priced priced = priceOn(chain, stage, ranges, moment, price);
      least = std::max(least, priced.seconds);
      (priced.over > 0 ? low : high) = price;
    }
  }
  return least;
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
        here = std::min(here, chain.seconds(i, first, count) + rest.from(i + 1, first + count));
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
      if (double all = chain.seconds(i, first, count) + rest.from(i + 1, first + count); all < least) {
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
  high *= kRounding;
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
