// Splits are gone through as far as no chain that was the longest of another one is too long (chain_descent.h).
#include "planner/search/split_chunks.h"

#include "planner/search/bounds.h"
#include "planner/search/chain_descent.h"
#include "planner/search/chunk_player.h"
#include "planner/search/range_bounds.h"
#include "planner/search/split_ranges.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace espalier::planner {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kQuickPlays = 4, kQuickBudget = 200'000; // of a first look
constexpr size_t kSums = 8;                                // that take as long as an action
constexpr double kSlack = 1 - 1e-9;                        // for rounding
constexpr double kLongest = std::numeric_limits<double>::max();

// Layers that each stage may have, from least to most.
struct Ranges {
  std::vector<int> least, most;
};

// What a chain takes under the splits of some ranges.
struct Bound {
  std::vector<std::vector<std::vector<double>>> own; ///< [stage][layers - least][choice]
  std::vector<std::vector<double>> least;            ///< of any choice
  /// [stage][layers above - least above]: least of this stage and those below it.
  std::vector<std::vector<double>> rest;
};

class ChunkSearch {
public:
  ChunkSearch(const Problem &problem, StageOptions &stageOptions, int64_t budget)
      : problem(problem), stageOptions(stageOptions), options(problem, stageOptions), player(stageOptions),
        axes(stageOptions.axes()), stages(axes.pp), layers(static_cast<int>(stageOptions.table().layerKinds.size())),
        perStage(chunksOf(axes.schedule, axes.virtualStages)), isQuick(budget <= 0),
        budget(isQuick ? kQuickBudget : budget), ofGiven(stages) {
    for (int stage = 0; stage < stages; ++stage)
      fewest.push_back(isGiven() ? 0 : leastLayers(problem, axes, stage));
    for (int i = 0; isGiven() && i < stages * perStage; ++i)
      fewest[player.stageOf(i)] += (*problem.pins.stageLayers)[i];
    const CostTable &costs = stageOptions.table();
    Recompute first = problem.pins.recompute.value_or(Recompute::None), last = first;
    if (axes.offloadActivations && !problem.pins.recompute)
      last = Recompute::Full; // keeping less may be faster
    for (int kept = static_cast<int>(first); kept <= static_cast<int>(last); ++kept) {
      classes.push_back(segmentSeconds(costs.kinds[costs.layerKinds.front()], kept));
      for (int kind : costs.layerKinds)
        leastSeconds = std::min(leastSeconds, segmentSeconds(costs.kinds[kind], kept).total());
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
    int64_t given = budget, plays = isQuick ? kQuickPlays : std::numeric_limits<int64_t>::max();
    Split split{balanced(), std::vector<size_t>(stages)};
    double low = std::max(workBound(), ownBound);
    ChainDescent descent(*this, stages, budget);
    do {
      play(split, result);
      if (!isQuick && result.played == 1)
        turnAtStages(split);
    } while (--plays > 0 && descent.next(std::min(limit, result.seconds) * kSlack, low, /*rises=*/!isQuick, split));
    result.spent = isQuick ? 0 : given - budget;
    result.lowerBound = std::min(limit, result.seconds);
    for (const Bound &known : bounds)
      low = std::max(low, std::min(known.rest[0][0], narrowedTo));
    if (low < result.lowerBound * kSlack)
      result.lowerBound = low;
    return result;
  }

  // What a descent asks for.

  size_t chains() const { return bounds.size(); }

  // Narrows the ranges to what may end by `target` as far as each stage alone tells, and each chain.
  bool isWithin(double target) {
    if (target > narrowedTo)
      ranges = {};
    narrowedTo = target;
    Ranges before = ranges;
    if (!rangesWithin(target))
      return false;
    if (ranges.least != before.least || ranges.most != before.most)
      bounds.clear(); // they are summed within ranges
    do {
      leastAbove.assign(1, 0);
      for (int least : ranges.least)
        leastAbove.push_back(leastAbove.back() + least);
      if (!std::ranges::equal(ranges.least, ranges.most, std::less_equal()) || leastAbove.back() > layers ||
          std::accumulate(ranges.most.begin(), ranges.most.end(), 0) < layers)
        return false;
      while (bounds.size() < known.size())
        bounds.push_back(boundOf(known[bounds.size()]));
    } while (!isQuick && shave(target));
    return true;
  }

  double rest(size_t chain, int stage, int used) const { return bounds[chain].rest[stage][used - leastAbove[stage]]; }

  std::pair<int, int> counts(int stage, int /*used*/) const { return {ranges.least[stage], ranges.most[stage]}; }

  size_t choices(const Split &split, int /*used*/) {
    return choicesOf(static_cast<int>(split.counts.size()) - 1, split.counts.back()).size();
  }

  static bool isChosenAt(int /*stage*/) { return true; }

  bool hasAllChoices() const { return options.isComplete(); }

  double seconds(size_t chain, const Split &split, int /*used*/) const {
    size_t stage = split.counts.size() - 1;
    return bounds[chain].least[stage][split.counts[stage] - ranges.least[stage]];
  }

  double seconds(size_t chain, const Split &split, int /*used*/, size_t choice) const {
    size_t stage = split.counts.size() - 1;
    return bounds[chain].own[stage][split.counts[stage] - ranges.least[stage]][choice];
  }

private:
  bool isGiven() const { return problem.pins.stageLayers.has_value(); }

  // The chunks of a stage that holds so many layers.
  std::vector<LayerRange> rangesOf(int stage, int count) const {
    std::vector<LayerRange> ranges;
    for (int chunk = 0; chunk < perStage; ++chunk) {
      ranges.push_back({0, layersOfChunk(axes, stage, chunk, count)});
      if (!isGiven())
        continue;
      auto pinned = problem.pins.stageLayers->begin(), here = pinned + player.position(stage, chunk);
      ranges.back() = {std::accumulate(pinned, here, 0), *here};
    }
    return ranges;
  }

  const std::vector<ChunkOption> &choicesOf(int stage, int count) {
    if (!isGiven())
      return options.choices(stage, count);
    if (ofGiven[stage].empty())
      ofGiven[stage] = options.choices(stage, rangesOf(stage, count));
    return ofGiven[stage];
  }

  // What a stage takes alone, whatever the others have, down to which the first micro-batch comes by way of the edges
  // above; infinite where it does not fit, or with nothing repeated already takes longer than `target`.
  double alone(int stage, int count, double target = kLongest) {
    auto microBatches = static_cast<int>(axes.microBatches);
    double m = microBatches, waits = player.waits()[stage], work = player.stageEdges()[stage];
    if (waits + m * (work + count * leastSeconds) > target * (1 + 1e-9))
      return kInfinity;
    const ChunkOption &option = isGiven() ? choicesOf(stage, count).front() : options.best(stage, count);
    if (!option.fits)
      return kInfinity;
    if (!options.isComplete()) { // some choice that was left out may be faster
      Chain all{0, {}, stage};
      all.times.assign(player.edges().size(),
                       {microBatches, microBatches, splitsBackward(axes.schedule) ? microBatches : 0});
      return waits + leastWithinRoom(all, stage, count);
    }
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
    if (perStage == 1 || isGiven())
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
    Ranges found = rangesUpTo(std::move(most));
    for (size_t stage = 0; stage < ranges.least.size(); ++stage)
      found.least[stage] = std::max(found.least[stage], ranges.least[stage]);
    ranges = std::move(found);
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

  // No split ends earlier, as far as the work of all stages tells.
  double workBound() const {
    return relaxedBound(sumWork(problem, stageOptions.table()), problem.machine, axes, /*chunksAlike=*/!isGiven());
  }

  std::vector<const ChunkOption *> chosen(const Split &split) {
    std::vector<const ChunkOption *> list;
    for (int stage = 0; stage < stages; ++stage)
      list.push_back(&choicesOf(stage, split.counts[stage])[split.choices[stage]]);
    return list;
  }

  // Plays a split, keeps it when it is faster, and notes its longest chain.
  void play(const Split &split, SplitResult &result) {
    std::vector<const ChunkOption *> stageOptions = chosen(split);
    budget -= static_cast<int64_t>(player.schedule().actions());
    ++result.played;
    Chain chain = player.play(stageOptions);
    if (chain.seconds < result.seconds && chain.seconds < limit) {
      result.seconds = chain.seconds;
      result.counts = isGiven() ? *problem.pins.stageLayers : spreadOverChunks(axes, split.counts);
      result.repeated.clear();
      for (const ChunkOption *option : stageOptions)
        result.repeated.push_back(option->repeated);
    }
    known.push_back(std::move(chain));
  }

  // The longest chains of a split on which one stage after the other takes twice as long: most turn at it.
  void turnAtStages(const Split &split) {
    int64_t actions = static_cast<int64_t>(player.schedule().actions()) * stages;
    if (actions > budget / 4) // stages are very many
      return;
    budget -= actions;
    for (int stage = 0; stage < stages; ++stage)
      known.push_back(player.play(chosen(split), /*slow=*/stage));
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

  // What a chain takes on a stage at least, where choices were left out.
  double leastWithinRoom(const Chain &chain, int stage, int count) {
    if (!room) {
      room.emplace(problem, stageOptions, player);
      room->readRoom();
    }
    return room->leastOn(room->chainOf(chain), stage, rangesOf(stage, count));
  }

  // What a chain takes within the present ranges.
  Bound boundOf(const Chain &chain) {
    Bound bound;
    bound.own.resize(stages);
    bound.least.resize(stages);
    bound.rest.resize(stages + 1);
    std::vector<size_t> width = {1}; // numbers of layers that may lie above a stage
    for (int stage = 0; stage < stages; ++stage)
      width.push_back(width.back() + ranges.most[stage] - ranges.least[stage]);
    bound.rest[stages].assign(width[stages], kInfinity);
    bound.rest[stages][layers - leastAbove[stages]] = 0;
    for (int stage = stages - 1; stage >= 0; --stage) {
      std::vector<double> &least = bound.least[stage], &rest = bound.rest[stage], &behind = bound.rest[stage + 1];
      for (int count = ranges.least[stage]; count <= ranges.most[stage]; ++count) {
        std::vector<double> &own = bound.own[stage].emplace_back();
        const std::vector<ChunkOption> &choices = choicesOf(stage, count);
        for (const ChunkOption &option : choices)
          own.push_back(player.seconds(chain, stage, option));
        if (options.isComplete())
          least.push_back(std::ranges::min(own));
        else
          least.push_back(leastWithinRoom(chain, stage, count));
      }
      rest.assign(width[stage], kInfinity);
      for (size_t used = 0; used < rest.size(); ++used)
        for (size_t more = 0; more < least.size(); ++more)
          rest[used] = std::min(rest[used], least[more] + behind[used + more]);
    }
    return bound;
  }

  // Takes from the ends of the ranges what no split has under which all chains end by `target`. Whether there was any.
  bool shave(double target) {
    std::vector<std::vector<bool>> isLeft;
    for (int stage = 0; stage < stages; ++stage)
      isLeft.emplace_back(ranges.most[stage] - ranges.least[stage] + 1, true);
    for (const Bound &bound : bounds) {
      std::vector<double> above = {0}, next; // the least of the stages above, as rest
      for (int stage = 0; stage < stages; ++stage) {
        const std::vector<double> &own = bound.least[stage], &behind = bound.rest[stage + 1];
        next.assign(behind.size(), kInfinity);
        for (size_t more = 0; more < own.size(); ++more) {
          double least = kInfinity;
          for (size_t used = 0; used < above.size(); ++used) {
            next[used + more] = std::min(next[used + more], above[used] + own[more]);
            least = std::min(least, above[used] + own[more] + behind[used + more]);
          }
          isLeft[stage][more] = isLeft[stage][more] && least <= target;
        }
        budget -= static_cast<int64_t>(above.size() * own.size() / kSums);
        std::swap(above, next);
      }
    }
    bool isAny = false;
    for (int stage = 0; stage < stages; ++stage) {
      std::vector<bool> &left = isLeft[stage];
      for (; !left.empty() && !left.back(); left.pop_back(), isAny = true)
        --ranges.most[stage];
      for (size_t i = 0; i < left.size() && !left[i]; ++i, isAny = true)
        ++ranges.least[stage];
    }
    if (isAny)
      bounds.clear();
    return isAny;
  }

  const Problem &problem;
  StageOptions &stageOptions;
  ChunkOptions options;
  ChunkPlayer player;
  const Plan &axes;
  int stages, layers, perStage;
  bool isQuick;
  int64_t budget;
  double limit = kInfinity;
  double ownBound = 0;               // no split ends earlier, as far as each stage alone tells
  std::vector<ChunkSeconds> classes; // of layers that are alike, under each class that may be fastest in some action
  double leastSeconds = kInfinity;   // of any layer
  std::vector<std::vector<ChunkOption>> ofGiven; // choices of each stage, where chunks are pinned
  std::vector<int> fewest;                       // layers per stage
  Ranges ranges;
  double narrowedTo = kInfinity;
  std::vector<int> leastAbove; // layers above each stage
  std::optional<RangeBounds> room;
  std::vector<Chain> known;  // each the longest of some split
  std::vector<Bound> bounds; // of the first of them, within the ranges
};

} // namespace

SplitResult bestChunks(const Problem &problem, StageOptions &options, double limit, int64_t budget) {
  if (!problem.pins.stageLayers && !options.hasOneKind())
    return bestRanges(problem, options, limit, budget);
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
