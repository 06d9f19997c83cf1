// The bound of a split is the longest of the chains that turn at one stage (longest_paths.h). For a target time T only
// the longest way back to a stage that ends last matters of the upper stages, so a table over (stage, layers used)
// decides T.
#include "planner/search/split_layers.h"

#include "planner/search/bounds.h"
#include "planner/search/longest_paths.h"
#include "planner/search/split_chunks.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>

namespace espalier::planner {

double playedStepSeconds(const OrderedSchedule &schedule, const std::vector<ChunkSeconds> &chunks,
                         const std::vector<double> &stepSeconds) {
  Played played = schedule.play(chunks);
  double seconds = 0;
  for (size_t stage = 0; stage < stepSeconds.size(); ++stage)
    seconds = std::max(seconds, played.endSeconds[stage] + stepSeconds[stage]);
  return seconds;
}

namespace {

constexpr int64_t kNodeCost = 20;  // a step of the descent costs about as much as playing this many actions
constexpr size_t kMostChains = 16; // of splits that were played
constexpr double kBalance = 2e-3;  // a balanced split ends within this share of the earliest
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class SplitSearch {
public:
  SplitSearch(const Problem &problem, StageOptions &options, int64_t budget)
      : problem(problem), options(options), axes(options.axes()), stages(axes.pp),
        layers(static_cast<int>(options.table().layerKinds.size())), budget(budget),
        paths(axes.schedule, stages, axes.microBatches), path(stages + 1) {
    sumLayers();
  }

  SplitResult run(double limit) {
    SplitResult result;
    double low =
        std::min(limit, relaxedBound(sumWork(problem, options.table()), problem.machine, axes, true)) * (1 - 1e-9);
    std::vector<int> counts = balance(low, limit);
    double high = counts.empty() ? kInfinity : chainBound(counts);
    if (high > limit && !counts.empty())
      counts = decide(high = limit);
    if (counts.empty()) {
      result.lowerBound = limit;
      return result;
    }
    high = std::min(high, chainBound(counts));
    tighten(low, high, counts);
    result.lowerBound = low;
    take(counts, result);
    if (budget > 0 && result.seconds > low * (1 + 2e-9)) {
      int64_t given = budget;
      exhaust(limit, result);
      result.spent = given - budget;
    }
    if (result.seconds <= result.lowerBound * (1 + 2e-9))
      result.lowerBound = result.seconds;
    return result;
  }

  SplitResult balanced(double limit) {
    SplitResult result;
    double low = relaxedBound(sumWork(problem, options.table()), problem.machine, axes, true) * (1 - 1e-9);
    std::vector<int> counts = balance(low, limit);
    result.lowerBound = counts.empty() ? limit : low;
    if (!counts.empty() && chainBound(counts) < limit)
      take(counts, result);
    return result;
  }

private:
  // What one micro-batch takes in the layers before each layer, and in the edges of the stages before each stage, with
  // the least that may be repeated. Forwards do not depend on what is kept, or all layers keep the same.
  void sumLayers() {
    const CostTable &table = options.table();
    int recompute = static_cast<int>(problem.pins.recompute.value_or(Recompute::None));
    layerSums.resize(1);
    for (int kind : table.layerKinds) {
      ChunkSeconds seconds = segmentSeconds(table.kinds[kind], recompute);
      layerSums.push_back({layerSums.back().forward + seconds.forward, layerSums.back().back + paths.up(seconds)});
    }
    edgeSums.resize(1);
    for (int stage = 0; stage < stages; ++stage) {
      edges.push_back(edgeSeconds(table, stage, stages, 1, false));
      edgeSums.push_back(
          {edgeSums.back().forward + edges[stage].forward, edgeSums.back().back + paths.up(edges[stage])});
    }
  }

  double forwardAbove(int stage, int used) const { return edgeSums[stage].forward + layerSums[used].forward; }

  double passingBelow(int stage, int used) const {
    return edgeSums[stages].passing() - edgeSums[stage + 1].passing() + layerSums[layers].passing() -
           layerSums[used].passing();
  }

  // With the least backward of any choice of what is kept: chains are bounds.
  ChunkSeconds leastSecondsOf(int stage, const StageOption &option) const {
    const ChunkSeconds &edge = edges[stage], &inner = option.seconds;
    return {inner.forward + edge.forward, option.leastBackward + edge.backward, inner.weight + edge.weight};
  }

  // One choice for a stage, as the chains see it.
  struct Step {
    double start;   ///< forwards above the stage and what is left when its last backward ends
    double turning; ///< from its first forward to its last backward
    double passing; ///< what it adds to the chains of the stages below it
    double alone;   ///< whatever the other stages do; a part of its layers alone takes no longer
  };

  // Work once per step may shrink when layers come to the stage, as more hides beside a longer backward, but less than
  // the backward grows; so own endings are counted in `alone` only with all work of the stage.
  Step stepOf(int stage, int first, int count, const StageOption &option) const {
    ChunkSeconds seconds = leastSecondsOf(stage, option);
    double above = forwardAbove(stage, first), back = edgeSums[stage].back + layerSums[first].back;
    Step step;
    step.start = above + paths.ending(stage, seconds, option.stepSeconds);
    step.turning = paths.turning(stage, seconds, passingBelow(stage, first + count));
    step.passing = paths.passing(seconds);
    step.alone = std::max(above + static_cast<double>(axes.microBatches) * seconds.total() + option.stepSeconds,
                          stage > 0 ? above + back + firstEnding + step.turning : 0);
    return step;
  }

  double chainBound(const std::vector<int> &counts) {
    double bound = 0, start = 0;
    for (int stage = 0, first = 0; stage < stages; first += counts[stage++]) {
      Step step = stepOf(stage, first, counts[stage], options.best(stage, first, counts[stage]));
      start = std::max(start, step.start);
      bound = std::max(bound, start + step.turning);
      start += step.passing;
    }
    return bound;
  }

  // Range of layers that a stage may have when `left` are left for it and `after` stages behind it.
  std::pair<int, int> range(int stage, int left) const {
    int after = stages - stage - 1;
    if (problem.pins.stageLayers) {
      int pinned = (*problem.pins.stageLayers)[stage];
      return pinned <= left - after || after == 0 ? std::pair(pinned, pinned) : std::pair(1, 0);
    }
    return after == 0 ? std::pair(left, left) : std::pair(1, left - after);
  }

  // A split whose stages, each alone, end nearly as early as those of any other and by `limit`. Raises `low` to what no
  // split reaches.
  std::vector<int> balance(double &low, double limit) {
    if (problem.pins.stageLayers)
      return decide(limit);
    leastFirst = 1, mostFirst = layers;
    std::vector<int> counts;
    auto fillsBy = [&](double target) {
      if (!fill(target))
        return false;
      counts.clear();
      for (int stage = 0; stage < stages; ++stage)
        counts.push_back(highest[stage + 1] - highest[stage]);
      return true;
    };
    if (low >= limit || !fillsBy(limit))
      return counts;
    double high = limit, step = 1.1;
    for (int i = 0; i < 60 && high > low * (1 + kBalance); ++i) {
      double target = std::min(low * step, (low + high) / 2);
      if (fillsBy(target))
        high = target;
      else
        low = target, step *= step;
    }
    return counts;
  }

  // What a stage may have, as far as a bound of what it repeats tells; null where that cannot respect T alone.
  const StageOption *inTime(int stage, int first, int count, double target) {
    double work = layerSums[first + count].passing() - layerSums[first].passing() + paths.passing(edges[stage]);
    if (forwardAbove(stage, first) + static_cast<double>(axes.microBatches) * work > target * (1 + 1e-9))
      return nullptr; // with nothing repeated; spares most the choice of what is kept
    const StageOption &option = options.bound(stage, first, count);
    return option.fits && stepOf(stage, first, count, option).alone <= target ? &option : nullptr;
  }

  // Gives each stage in turn as many layers as it can take by T alone; false when they do not take all. The first stage
  // has as many as the present range allows.
  bool fill(double target) {
    highest.assign(stages + 1, layers);
    highest[0] = 0;
    firstEnding = kInfinity;
    auto [least, most] = range(0, layers);
    most = std::min(most, mostFirst);
    for (int count = 1; count <= most && (count < least || inTime(0, 0, count, target)); ++count)
      if (count >= std::max(least, leastFirst)) {
        const StageOption &option = options.bound(0, 0, count);
        firstEnding = std::min(firstEnding, paths.ending(0, leastSecondsOf(0, option), option.stepSeconds));
        highest[1] = count;
      }
    if (firstEnding == kInfinity)
      return false;
    for (int stage = 1; stage < stages && !problem.pins.stageLayers; ++stage) {
      int first = highest[stage], end = first;
      while (end < layers - (stages - stage - 1) && inTime(stage, first, end + 1 - first, target))
        ++end;
      if (end == first)
        return false;
      highest[stage + 1] = end;
    }
    return problem.pins.stageLayers || highest[stages] == layers;
  }

  // Layers that may be used before each stage so that those above and those below it can respect T alone: a part of a
  // range that does so does so, too, hence the longest ranges from both ends bound them. False when nothing is left.
  bool narrow(double target) {
    lowest.assign(stages + 1, 0);
    if (!fill(target))
      return false;
    if (problem.pins.stageLayers) {
      highest.assign(stages + 1, layers);
      return true;
    }
    lowest[stages] = layers;
    for (int stage = stages - 1; stage > 0; --stage) {
      int end = lowest[stage + 1], first = end;
      while (first > stage && inTime(stage, first - 1, end - first + 1, target))
        --first;
      if (first == end)
        return false;
      lowest[stage] = first;
    }
    if (stages > 1)
      lowest[1] = std::max(lowest[1], leastFirst);
    for (int stage = 0; stage <= stages; ++stage)
      if (lowest[stage] > highest[stage])
        return false;
    return true;
  }

  // Calls visit(count, step) for the options of a stage that fit and respect T alone; longer ranges only take longer,
  // so the first that is too slow ends the loop.
  template <typename Visit> void visitOptions(int stage, int first, double target, Visit visit) {
    auto [least, most] = range(stage, layers - first);
    least = std::max(least, lowest[stage + 1] - first);
    most = std::min(most, highest[stage + 1] - first);
    for (int count = std::max(least, 1); count <= most; ++count) {
      const StageOption *option = inTime(stage, first, count, target);
      if (option && isExact && !option->isProved())
        option = &options.best(stage, first, count);
      if (!option)
        break; // more layers need more bytes and more time
      Step step = stepOf(stage, first, count, *option);
      if (step.alone > target)
        break;
      visit(count, step);
    }
  }

  // A split whose chains all end by `target`, or none. How the first stage ends counts everywhere: where a table for
  // the least of a range of first stages promises too much, the range is cut at the one it chose.
  std::vector<int> decide(double target) {
    std::vector<std::pair<int, int>> open = {{1, layers}};
    while (!open.empty()) {
      std::tie(leastFirst, mostFirst) = open.back();
      open.pop_back();
      std::vector<int> counts = decideWithin(target);
      if (counts.empty())
        continue;
      int first = counts.front();
      if (leastFirst == mostFirst || chainBound(counts) <= target)
        return counts;
      if (first < mostFirst)
        open.push_back({first + 1, mostFirst});
      open.push_back({first, first});
      if (leastFirst < first)
        open.push_back({leastFirst, first - 1});
    }
    return {};
  }

  // The same for the present range of first stages. What a stage keeps is chosen where a split needs it and only
  // bounded elsewhere; a split that is found again is chosen throughout.
  std::vector<int> decideWithin(double target) {
    if (!narrow(target))
      return {};
    std::vector<int> counts, before;
    do {
      before = std::move(counts);
      counts = leastStarts(target);
    } while (!counts.empty() && chainBound(counts) > target && counts != before);
    return counts;
  }

  // least[stage][used] is the least start of a stage behind so many layers.
  std::vector<int> leastStarts(double target) {
    std::vector<std::vector<double>> least(stages + 1, std::vector<double>(layers + 1, kInfinity));
    std::vector<std::vector<int>> choice(stages + 1, std::vector<int>(layers + 1, 0));
    least[0][0] = 0;
    for (int stage = 0; stage < stages; ++stage)
      for (int used = lowest[stage]; used <= highest[stage]; ++used) {
        if (least[stage][used] == kInfinity)
          continue;
        visitOptions(stage, used, target, [&](int count, const Step &step) {
          double start = std::max(least[stage][used], step.start);
          if (start + step.turning <= target && start + step.passing < least[stage + 1][used + count]) {
            least[stage + 1][used + count] = start + step.passing;
            choice[stage + 1][used + count] = count;
          }
        });
      }
    std::vector<int> counts;
    if (least[stages][layers] == kInfinity)
      return counts;
    counts.resize(stages);
    for (int stage = stages, used = layers; stage > 0; used -= choice[stage--][used])
      counts[stage - 1] = choice[stage][used];
    return counts;
  }

  // Narrows [low, high]: no split has a bound below low, `counts` has the bound high.
  void tighten(double &low, double &high, std::vector<int> &counts) {
    for (int i = 0; i < 60 && high > low * (1 + 1e-9); ++i) {
      double target = i == 0 ? high * (1 - 1e-9) : (low + high) / 2;
      std::vector<int> found = decide(target);
      if (found.empty()) {
        low = target;
        continue;
      }
      counts = std::move(found);
      high = std::min(target, chainBound(counts));
    }
  }

  // Plays a split, keeps it when it is faster, and returns its longest chain. Where what a stage keeps is not proved
  // best, playing the least that it could be bounds the split.
  Chain take(const std::vector<int> &counts, SplitResult &result) {
    std::vector<ChunkSeconds> chunks, least;
    std::vector<double> steps;
    bool proved = true;
    for (int stage = 0, first = 0; stage < stages; first += counts[stage++]) {
      const StageOption &option = options.best(stage, first, counts[stage]);
      least.push_back(leastSecondsOf(stage, option));
      chunks.push_back(least.back());
      chunks.back().backward += option.seconds.backward - option.leastBackward;
      proved = proved && option.isProved();
      steps.push_back(option.stepSeconds);
    }
    if (!schedule)
      schedule = options.schedule();
    Chain chain = schedule->longestChain(chunks, steps);
    ++result.played;
    if (!proved)
      unproved = std::min(unproved, playedStepSeconds(*schedule, least, steps));
    if (chain.seconds < result.seconds) {
      result.seconds = chain.seconds;
      result.counts = counts;
    }
    return chain;
  }

  // Plays every split whose bound is below the best.
  void exhaust(double limit, SplitResult &result) {
    for (int first = 1; first <= layers - stages + 1 && options.bound(0, 0, first).fits; ++first) {
      leastFirst = mostFirst = first;
      if (!exhaustWithin(limit, result))
        return;
    }
    // Every split that was not played has a bound above the best.
    result.lowerBound = std::min({result.seconds, limit, unproved});
  }

  // The same for the present range of first stages; slack[stage][used] is the largest start from which the rest can
  // still end in time. False when the budget ends.
  bool exhaustWithin(double limit, SplitResult &result) {
    double target = std::min(limit, result.seconds) * (1 - 1e-9);
    if (!narrow(target))
      return true;
    std::vector<std::vector<double>> slack(stages + 1, std::vector<double>(layers + 1, -kInfinity));
    slack[stages][layers] = kInfinity;
    for (int stage = stages - 1; stage >= 0; --stage)
      for (int used = lowest[stage]; used <= highest[stage]; ++used)
        visitOptions(stage, used, target, [&](int count, const Step &step) {
          double most = std::min(target - step.turning, slack[stage + 1][used + count] - step.passing);
          if (step.start <= most)
            slack[stage][used] = std::max(slack[stage][used], most);
        });
    for (PlayedChain &one : played)
      sumRest(one, target);
    std::vector<int> counts;
    isExact = true;
    bool complete = descend(0, 0, 0, limit, slack, counts, result);
    isExact = false;
    return complete;
  }

  bool descend(int used, int stage, double start, double limit, const std::vector<std::vector<double>> &slack,
               std::vector<int> &counts, SplitResult &result) {
    budget -= kNodeCost;
    if (budget < 0)
      return false;
    if (stage == stages) {
      budget -= axes.microBatches * stages * 2;
      Chain chain = take(counts, result);
      addPlayed(std::move(chain), std::min(limit, result.seconds) * (1 - 1e-9));
      return true;
    }
    bool complete = true;
    visitOptions(stage, used, limit, [&](int count, const Step &step) {
      double target = std::min(limit, result.seconds) * (1 - 1e-9);
      double here = std::max(start, step.start);
      if (!complete || here + step.turning > target || here + step.passing > slack[stage + 1][used + count])
        return;
      counts.push_back(count);
      path[counts.size()] = ++nodes;
      if (mayEndWithin(target, counts, used + count))
        complete = descend(used + count, stage + 1, here + step.passing, limit, slack, counts, result);
      counts.pop_back();
    });
    return complete;
  }

  // What a chain takes on a stage with these layers, at least.
  double secondsOn(const Chain &chain, int stage, int first, int count) {
    const StageOption &option = options.bound(stage, first, count);
    ChunkSeconds seconds = leastSecondsOf(stage, option);
    const std::array<int, 3> &times = chain.times[stage];
    double backward = seconds.backward + (splitsBackward(axes.schedule) ? 0 : seconds.weight);
    return times[0] * seconds.forward + times[1] * backward + times[2] * seconds.weight +
           (chain.lastStage == stage ? option.stepSeconds : 0);
  }

  // A chain, and the least that it takes on each stage and those below it, behind so many layers.
  struct PlayedChain {
    Chain chain;
    std::vector<std::vector<double>> rest;
    std::vector<double> above;  // what it takes on the stages before each, on the path of these nodes
    std::vector<int64_t> nodes; // from 1; 0 where nothing is known
  };

  void sumRest(PlayedChain &played, double target) {
    played.rest.assign(stages + 1, std::vector<double>(layers + 1, kInfinity));
    played.rest[stages][layers] = 0;
    for (int stage = stages - 1; stage >= 0; --stage)
      for (int used = lowest[stage]; used <= highest[stage]; ++used)
        visitOptions(stage, used, target, [&](int count, const Step &) {
          double &rest = played.rest[stage][used];
          rest = std::min(rest, secondsOn(played.chain, stage, used, count) + played.rest[stage + 1][used + count]);
        });
  }

  void addPlayed(Chain chain, double target) {
    if (played.size() >= kMostChains)
      played.pop_back();
    played.insert(played.begin(),
                  {std::move(chain), {}, std::vector<double>(stages + 1), std::vector<int64_t>(stages + 1)});
    budget -= static_cast<int64_t>(stages) * layers;
    sumRest(played.front(), target);
  }

  // Whether the chains of splits played before leave time for the first stages of a split, which end behind `end`
  // layers.
  bool mayEndWithin(double target, const std::vector<int> &counts, int end) {
    auto rulesOut = [&](PlayedChain &one) {
      return secondsAbove(one, counts, end) + one.rest[counts.size()][end] > target;
    };
    auto one = std::ranges::find_if(played, rulesOut);
    budget -= (one - played.begin()) / 4;
    if (one == played.end())
      return true;
    std::rotate(played.begin(), one, one + 1); // likely to rule out the next one, too
    return false;
  }

  // What a chain takes on the first stages of a split, at least; remembered along the path.
  double secondsAbove(PlayedChain &one, const std::vector<int> &counts, int end) {
    size_t known = counts.size();
    for (; known > 0 && one.nodes[known] != path[known]; --known)
      end -= counts[known - 1];
    for (; known < counts.size(); ++known) {
      one.above[known + 1] = one.above[known] + secondsOn(one.chain, static_cast<int>(known), end, counts[known]);
      one.nodes[known + 1] = path[known + 1];
      end += counts[known];
    }
    return one.above[known];
  }

  const Problem &problem;
  StageOptions &options;
  const Plan &axes;
  int stages, layers;
  int64_t budget;
  LongestPaths paths;
  struct Sums {
    double forward = 0, back = 0;
    double passing() const { return forward + back; }
  };
  std::vector<Sums> layerSums, edgeSums; // of the layers and of the edges of stages before each
  std::vector<ChunkSeconds> edges;       // per stage
  int leastFirst = 1, mostFirst = 1;     // layers of the first stage that are looked at
  bool isExact = false;                  // what a stage keeps is chosen, not only bounded
  double firstEnding = 0;                // the least of the endings of those in time for the last target
  std::vector<int> lowest, highest;      // layers used before each stage, for the last target narrowed to
  std::vector<int64_t> path;             // the node of the descent behind so many stages
  int64_t nodes = 0;
  std::vector<PlayedChain> played; // with what they take for the last target narrowed to
  double unproved = kInfinity;     // least bound of the splits that were played without proof of what is kept
  std::shared_ptr<const OrderedSchedule> schedule; // asked for when the first split is played
};

} // namespace

SplitResult balancedSplit(const Problem &problem, StageOptions &options, double limitSeconds) {
  if (hasSeveralChoices(problem, options.axes()))
    return bestChunks(problem, options, limitSeconds, /*budget=*/0);
  return SplitSearch(problem, options, /*budget=*/0).balanced(limitSeconds);
}

SplitResult bestSplit(const Problem &problem, StageOptions &options, double limitSeconds, int64_t budget) {
  if (hasSeveralChoices(problem, options.axes()))
    return bestChunks(problem, options, limitSeconds, budget);
  return SplitSearch(problem, options, budget).run(limitSeconds);
}

} // namespace espalier::planner
