// Splits are gone through as far as no chain that was the longest of another one (chunk_player.h) is too long.
#include "planner/split_chunks.h"

#include "planner/chunk_player.h"
#include "planner/split_ranges.h"
#include "planner/work_bounds.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace espalier::planner {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kQuickPlays = 4, kQuickBudget = 200'000; // of a first look
constexpr double kSlack = 1 - 1e-9;                        // for rounding
constexpr double kLongest = std::numeric_limits<double>::max();

// Layers that each stage may have, from least to most.
struct Ranges {
  std::vector<int> least, most;
};

// Layers of a stage, and which of the choices of what they repeat.
struct StageChoice {
  int layers = 0;
  size_t choice = 0;
};

// What a chain takes under the splits of some ranges.
struct Bound {
  std::vector<std::vector<std::vector<double>>> own; ///< [stage][layers - least][choice]
  /// [stage][layers above - least above]: least of this stage and those below it.
  std::vector<std::vector<double>> rest;
};

class ChunkSearch {
public:
  ChunkSearch(const Problem &problem, StageOptions &stageOptions, int64_t budget)
      : problem(problem), stageOptions(stageOptions), options(problem, stageOptions), player(stageOptions),
        axes(stageOptions.axes()), stages(axes.pp), layers(static_cast<int>(stageOptions.table().layerKinds.size())),
        perStage(chunksOf(axes.schedule, axes.virtualStages)), budget(budget) {
    for (int stage = 0; stage < stages; ++stage)
      fewest.push_back(leastLayers(problem, axes, stage));
    const CostTable &costs = stageOptions.table();
    Recompute first = problem.pins.recompute.value_or(Recompute::None), last = first;
    if (axes.offloadActivations && !problem.pins.recompute)
      last = Recompute::Full; // keeping less may be faster
    for (int kept = static_cast<int>(first); kept <= static_cast<int>(last); ++kept) {
      classes.push_back(segmentSeconds(costs.kinds[costs.layerKinds.front()], kept));
      leastSeconds = std::min(leastSeconds, classes.back().total());
    }
  }

  SplitResult run(double limitSeconds) {
    limit = limitSeconds;
    SplitResult result;
    result.lowerBound = std::max(limit, 0.0);
    if (limit < kLongest && (!mayEndWithin(limit * kSlack) || !rangesWithin(limit * kSlack)))
      return result;
    if (limit >= kLongest && !rangesWithin(kLongest))
      return result;
    int64_t budgetGiven = budget, plays = budget > 0 ? std::numeric_limits<int64_t>::max() : kQuickPlays;
    if (budget <= 0)
      budget = kQuickBudget;
    std::vector<StageChoice> split;
    for (int layers : balanced())
      split.push_back({layers, 0});
    bool complete = false;
    while (plays-- > 0 && budget > 0) {
      Chain chain = play(split, result);
      double target = std::min(limit, result.seconds) * kSlack;
      Ranges before = ranges;
      if (!rangesWithin(target)) { // no stage can have fewer
        complete = true;
        break;
      }
      if (ranges.least != before.least || ranges.most != before.most)
        bounds.clear(); // they are summed within ranges
      chains.push_back(std::move(chain));
      while (bounds.size() < chains.size())
        bounds.push_back(boundOf(chains[bounds.size()]));
      if (!next(target, split)) {
        complete = budget > 0;
        break;
      }
    }
    result.spent = budgetGiven > 0 ? budgetGiven - budget : 0;
    result.lowerBound = std::min(limit, result.seconds);
    if (!complete || !options.isComplete()) {
      WorkSum work = sumWork(problem, stageOptions.table());
      double bound = relaxedBound(work, problem.machine, axes, /*chunksAlike=*/true);
      if (options.isComplete()) {
        bound = std::max(bound, ownBound);
        for (const Bound &known : bounds)
          bound = std::max(bound, known.rest[0][0]);
      }
      result.lowerBound = std::min(result.lowerBound, bound);
    }
    return result;
  }

private:
  // What a stage takes alone, whatever the others have, down to which the first micro-batch comes by way of the edges
  // above; infinite where it does not fit, or with nothing repeated already takes longer than `target`.
  double alone(int stage, int count, double target = kLongest) {
    double m = static_cast<double>(axes.microBatches);
    double waits = player.waits()[stage], work = player.stageEdges()[stage];
    if (waits + m * (work + count * leastSeconds) > target * (1 + 1e-9))
      return kInfinity;
    const ChunkOption &option = options.best(stage, count);
    if (!option.fits)
      return kInfinity;
    for (const ChunkSeconds &chunk : option.seconds)
      work += chunk.total();
    return waits + m * work + option.stepSeconds;
  }

  // Whether a split may end by `target` as far as that time tells, also on the chain that is longest when all actions
  // are alike.
  bool mayEndWithin(double target) {
    std::vector<int> most = mostInTime(target);
    if (most.empty())
      return false;
    if (perStage == 1)
      return true; // the bound of the work spread evenly has such chains
    Ranges within = rangesUpTo(std::move(most));
    // The least of the first stages, by the layers that they have more than their least.
    std::vector<double> sums = {0}, own, next;
    for (int stage = 0; stage < stages; ++stage) {
      own.clear();
      for (int count = within.least[stage]; count <= within.most[stage]; ++count)
        own.push_back(leastChainSeconds(player.schedule().unitChain(), stage, count));
      next.assign(sums.size() + own.size() - 1, kInfinity);
      for (size_t i = 0; i < sums.size(); ++i)
        for (size_t k = 0; k < own.size(); ++k)
          next[i + k] = std::min(next[i + k], sums[i] + own[k]);
      std::swap(sums, next);
    }
    int over = layers - std::accumulate(within.least.begin(), within.least.end(), 0);
    return sums[over] <= target * (1 + 1e-9);
  }

  // Most layers of each stage as far as the time tells that they take when they repeat least; empty when those are too
  // few.
  std::vector<int> mostInTime(double target) const {
    double m = static_cast<double>(axes.microBatches);
    int others = std::accumulate(fewest.begin(), fewest.end(), 0);
    int64_t sum = 0;
    std::vector<int> most;
    for (int stage = 0; stage < stages; ++stage) {
      double count =
          std::floor(((target * (1 + 1e-9) - player.waits()[stage]) / m - player.stageEdges()[stage]) / leastSeconds);
      if (count < fewest[stage])
        return {};
      most.push_back(static_cast<int>(std::min<double>(count, layers - others + fewest[stage])));
      sum += most.back();
    }
    return sum < layers ? std::vector<int>() : most;
  }

  // What a stage must have when the others have at most so many.
  Ranges rangesUpTo(std::vector<int> most) const {
    int sum = std::accumulate(most.begin(), most.end(), 0);
    Ranges found{fewest, std::move(most)};
    for (int stage = 0; stage < stages; ++stage)
      found.least[stage] = std::max(fewest[stage], layers - (sum - found.most[stage]));
    return found;
  }

  // The layers that a stage may have if it alone is to end by `target`, and if the others are to have the rest. False
  // when that leaves nothing.
  bool rangesWithin(double target) {
    std::vector<int> most = mostInTime(target);
    if (most.empty())
      return false;
    int sum = 0;
    for (int stage = 0; stage < stages; ++stage) {
      if (!ranges.most.empty())
        most[stage] = std::min(most[stage], ranges.most[stage]);
      sum += most[stage];
    }
    for (int stage = 0; stage < stages && sum >= layers; ++stage) {
      int low = fewest[stage] - 1, high = most[stage];
      while (low < high) {                    // grows with layers
        int middle = high - (high - low) / 4; // most often nearly all of them do
        if (alone(stage, middle, target) <= target)
          low = middle;
        else
          high = middle - 1;
      }
      if (low < fewest[stage])
        return false;
      sum -= most[stage] - low;
      most[stage] = low;
    }
    if (sum < layers)
      return false;
    ranges = rangesUpTo(std::move(most));
    return true;
  }

  // A split whose fullest stage takes least, within the ranges.
  std::vector<int> balanced() {
    double low = 0, high = 0;
    std::vector<int> totals = ranges.most;
    for (int stage = 0; stage < stages; ++stage)
      high = std::max(high, alone(stage, totals[stage]));
    high = std::min(high, limit);
    auto within = [&](double target) {
      std::vector<int> counts;
      for (int stage = 0; stage < stages; ++stage) {
        int count = ranges.most[stage];
        for (int least = ranges.least[stage]; count > least;) {
          int middle = least + (count - least) / 2;
          if (alone(stage, middle + 1, target) <= target)
            least = middle + 1;
          else
            count = middle;
        }
        counts.push_back(count);
      }
      return counts;
    };
    for (int i = 0; i < 40 && high > low * (1 + 1e-6); ++i) {
      double target = (low + high) / 2;
      std::vector<int> counts = within(target);
      bool isEnough = std::accumulate(counts.begin(), counts.end(), 0) >= layers;
      for (int stage = 0; stage < stages; ++stage)
        isEnough = isEnough && alone(stage, counts[stage], target) <= target;
      (isEnough ? high : low) = target;
      if (isEnough)
        totals = std::move(counts);
    }
    ownBound = low;
    for (int over = std::accumulate(totals.begin(), totals.end(), 0) - layers; over > 0; --over) {
      int slowest = -1;
      for (int stage = 0; stage < stages; ++stage)
        if (totals[stage] > ranges.least[stage] &&
            (slowest < 0 || alone(stage, totals[stage]) > alone(slowest, totals[slowest])))
          slowest = stage;
      --totals[slowest];
    }
    return totals;
  }

  // Plays a split, keeps it when it is faster, and returns its longest chain.
  Chain play(const std::vector<StageChoice> &split, SplitResult &result) {
    std::vector<const ChunkOption *> chosen;
    for (int stage = 0; stage < stages; ++stage)
      chosen.push_back(&options.choices(stage, split[stage].layers)[split[stage].choice]);
    budget -= static_cast<int64_t>(player.schedule().actions());
    ++result.played;
    Chain chain = player.play(chosen);
    if (chain.seconds < result.seconds && chain.seconds < limit) {
      result.seconds = chain.seconds;
      std::vector<int> totals;
      result.repeated.clear();
      for (int stage = 0; stage < stages; ++stage) {
        totals.push_back(split[stage].layers);
        result.repeated.push_back(chosen[stage]->repeated);
      }
      result.counts = spreadOverChunks(axes, totals);
    }
    return chain;
  }

  // What a chain takes on a stage without the work once per step, with layers that repeat least.
  double leastChainSeconds(const Chain &chain, int stage, int count) const {
    double seconds = 0;
    for (int chunk = 0; chunk < perStage; ++chunk) {
      int position = player.position(stage, chunk);
      double layer = kInfinity;
      for (const ChunkSeconds &one : classes)
        layer = std::min(layer, player.seconds(chain, position, one));
      seconds +=
          player.seconds(chain, position, player.edges()[position]) + layersOfChunk(axes, stage, chunk, count) * layer;
    }
    return seconds;
  }

  // What a chain takes within the present ranges.
  Bound boundOf(const Chain &chain) {
    std::vector<int> lowest(stages + 1), highest(stages + 1); // layers above a stage
    for (int stage = 0; stage < stages; ++stage) {
      lowest[stage + 1] = lowest[stage] + ranges.least[stage];
      highest[stage + 1] = highest[stage] + ranges.most[stage];
    }
    Bound bound;
    bound.own.resize(stages);
    bound.rest.resize(stages + 1);
    bound.rest[stages].assign(highest[stages] - lowest[stages] + 1, kInfinity);
    bound.rest[stages][layers - lowest[stages]] = 0;
    for (int stage = stages - 1; stage >= 0; --stage) {
      std::vector<double> own, &rest = bound.rest[stage], &behind = bound.rest[stage + 1];
      for (int count = ranges.least[stage]; count <= ranges.most[stage]; ++count) {
        bound.own[stage].emplace_back();
        for (const ChunkOption &option : options.choices(stage, count))
          bound.own[stage].back().push_back(player.seconds(chain, stage, option));
        own.push_back(*std::ranges::min_element(bound.own[stage].back()));
      }
      rest.assign(highest[stage] - lowest[stage] + 1, kInfinity);
      for (size_t used = 0; used < rest.size(); ++used)
        for (size_t more = 0; more < own.size(); ++more)
          rest[used] = std::min(rest[used], own[more] + behind[used + more]);
    }
    return bound;
  }

  // The next split, nearest to `split`, under which no chain is longer than `target`. False when there is none.
  bool next(double target, std::vector<StageChoice> &split) {
    std::vector<StageChoice> found;
    std::vector<double> sums(bounds.size());
    strictest = 0;
    if (!descend(target, split, 0, sums, found))
      return false;
    split = std::move(found);
    return true;
  }

  bool descend(double target, const std::vector<StageChoice> &near, int used, const std::vector<double> &sums,
               std::vector<StageChoice> &found) {
    size_t stage = found.size();
    if (budget < 0)
      return false;
    if (stage == static_cast<size_t>(stages))
      return true;
    int least = ranges.least[stage], most = ranges.most[stage];
    std::vector<int> order(most - least + 1);
    std::iota(order.begin(), order.end(), least);
    std::ranges::sort(order, {}, [&](int count) { return std::pair(std::abs(count - near[stage].layers), count); });
    std::vector<double> with(bounds.size());
    for (int count : order)
      for (size_t choice = 0; choice < bounds[0].own[stage][count - least].size(); ++choice) {
        auto isTooLong = [&](size_t i) {
          --budget;
          with[i] = sums[i] + bounds[i].own[stage][count - least][choice];
          return with[i] + bounds[i].rest[stage + 1][used + count - least] > target;
        };
        if (isTooLong(strictest)) // the chain that ruled the last one out
          continue;
        size_t i = 0;
        while (i < bounds.size() && !isTooLong(i))
          ++i;
        if (i < bounds.size()) {
          strictest = i;
          continue;
        }
        found.push_back({count, choice});
        if (descend(target, near, used + count - least, with, found))
          return true;
        found.pop_back();
      }
    return false;
  }

  const Problem &problem;
  StageOptions &stageOptions;
  ChunkOptions options;
  ChunkPlayer player;
  const Plan &axes;
  int stages, layers, perStage;
  int64_t budget;
  double limit = kInfinity;
  size_t strictest = 0;              // the chain that ruled the last split out
  double ownBound = 0;               // no split ends earlier, as far as each stage alone tells
  std::vector<ChunkSeconds> classes; // a layer under each class of recompute that may be fastest in some action
  double leastSeconds = kInfinity;   // of any of them
  std::vector<int> fewest;           // layers per stage
  Ranges ranges;
  std::vector<Chain> chains;
  std::vector<Bound> bounds; // of the first chains, within the ranges
};

} // namespace

SplitResult bestChunks(const Problem &problem, StageOptions &options, double limit, int64_t budget) {
  if (problem.pins.stageLayers || !options.hasOneKind())
    return bestRanges(problem, options, problem.pins.stageLayers.value_or(std::vector<int>()), limit, budget);
  return ChunkSearch(problem, options, budget).run(limit);
}

std::vector<int> evenChunks(const Problem &problem, const Plan &axes) {
  std::vector<int> totals;
  std::vector<bool> isEnd;
  for (int stage = 0; stage < axes.pp; ++stage) {
    StageContent ends = stageEnds(axes, stage);
    isEnd.push_back(ends.embed || ends.head);
    totals.push_back(leastLayers(problem, axes, stage));
  }
  int left = problem.layerCount() - std::accumulate(totals.begin(), totals.end(), 0);
  if (left < 0) { // too few for so many chunks
    left = problem.layerCount();
    std::ranges::fill(totals, 0);
  }
  for (; left > 0; --left) {
    int least = 0;
    for (int stage = 1; stage < axes.pp; ++stage)
      if (std::pair(totals[stage], isEnd[stage]) < std::pair(totals[least], isEnd[least]))
        least = stage;
    ++totals[least];
  }
  return spreadOverChunks(axes, totals);
}

LaidStages layStages(const Problem &problem, StageOptions &options, const std::vector<int> &counts,
                     const std::vector<std::vector<RepeatedLayers>> &repeated) {
  const Plan &axes = options.axes();
  int perStage = chunksOf(axes.schedule, axes.virtualStages);
  bool areChosen = hasSeveralChoices(problem, axes);
  ChunkOptions choices(problem, options);
  LaidStages laid;
  for (size_t chunk = 0, first = 0; chunk < counts.size(); first += counts[chunk++])
    laid.stages.push_back({static_cast<int>(first), counts[chunk], {}});
  for (int stage = 0; stage < axes.pp; ++stage) {
    if (!areChosen) {
      StagePlan &here = laid.stages[stage];
      here.recompute = options.keep(stage, here.firstLayer, here.layers);
      const StageOption &option = options.best(stage, here.firstLayer, here.layers);
      laid.bytes.push_back(option.bytes);
      laid.hostBytes.push_back(option.hostBytes);
      continue;
    }
    std::vector<LayerRange> own;
    std::vector<StagePlan *> chunks;
    for (int i = 0; i < perStage; ++i) {
      chunks.push_back(&laid.stages[modelChunk(stage, i, axes.pp, isVShaped(axes.schedule))]);
      own.push_back({chunks.back()->firstLayer, chunks.back()->layers});
    }
    ChunkOption option =
        choices.price(stage, own, repeated.empty() ? choices.best(stage, own).repeated : repeated[stage]);
    std::vector<std::vector<Recompute>> kept = keptLayers(options.table(), own, option.repeated);
    for (int i = 0; i < perStage; ++i)
      chunks[i]->recompute = std::move(kept[i]);
    laid.bytes.push_back(option.bytes);
    laid.hostBytes.push_back(option.hostBytes);
  }
  return laid;
}

} // namespace espalier::planner
