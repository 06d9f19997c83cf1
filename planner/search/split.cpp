// Branch and bound over splits, with critical paths as cuts (cuts.h). A split ends by a target only if all cuts do.
// The seconds of each cut on the upper stages plus its cost-to-go rule most splits out at their first stages. A
// remaining split is simulated and yields a cut. When none remains, the target is a lower bound.
#include "planner/search/split.h"

#include "planner/search/boundaries.h"
#include "planner/search/bounds.h"
#include "planner/search/cut_table.h"
#include "planner/search/local_search.h"

#include <algorithm>

namespace espalier::planner {

namespace {

constexpr int64_t kQuickPlays = 2, kQuickBudget = 200'000; // of a first search
constexpr double kSlack = 1 - 1e-9;                        // for rounding
constexpr double kFineGap = 1e-3;                          // below this gap the target is the incumbent itself
constexpr int kSlowed = 64; // most slowed stages; with 16, splits with few micro-batches were not proved
constexpr int kRounds = 3;  // rounds of closing boundaries: one closed boundary makes other cuts longer
constexpr int64_t kMostTableWork = 200'000'000; // most visited chunks for a table of options
constexpr double kLongest = std::numeric_limits<double>::max();

// Greedy: each stage in turn takes an even share of the remaining work, as far as the stage alone ends by `target`.
// Example: 7 s of work remain for 2 stages, in layers of 2, 2 and 3 s. The next stage takes two layers (4 s),
// because 4 s is nearer to 3.5 s than 2 s.
std::vector<int> balancedCounts(StageRanges &ranges, const Boundaries &boundaries, int stages, int layers,
                                double target) {
  const std::vector<double> &work = ranges.workBefore();
  std::vector<int> counts;
  double edges = 0; // of the remaining stages
  for (int stage = 0; stage < stages; ++stage)
    edges += ranges.edgeSeconds(stage);
  for (int stage = 0, first = 0; stage < stages; first += counts[stage++]) {
    double share = (work[layers] - work[first] + edges) / (stages - stage) - ranges.edgeSeconds(stage);
    edges -= ranges.edgeSeconds(stage);
    int least = boundaries.leastLayers(stage, first), most = boundaries.highest(stage + 1) - first;
    if (ranges.arePinned())
      most = least = ranges.fewestLayers(stage);
    auto place = std::ranges::lower_bound(work, work[first] + share);
    int count = std::clamp(static_cast<int>(place - work.begin()) - first, least, std::max(least, most));
    if (count > least && work[first + count] - work[first] - share > share - (work[first + count - 1] - work[first]))
      --count;
    while (count > least && ranges.stageBound(stage, first, count, target) > target)
      --count;
    counts.push_back(count);
  }
  return counts;
}

class SplitSearch {
public:
  SplitSearch(const Problem &problem, StageOptions &stageOptions, int64_t budget)
      : problem(problem), stageOptions(stageOptions), player(stageOptions), ranges(problem, stageOptions),
        config(stageOptions.config()), stages(config.pp),
        layers(static_cast<int>(stageOptions.table().layerKinds.size())), isQuick(budget <= 0),
        budget(isQuick ? kQuickBudget : budget), given(this->budget), boundaries(ranges, stages, layers),
        table(ranges, player, boundaries, stages) {}

  SplitResult run(double limitSeconds) {
    limit = std::min(limitSeconds, kLongest);
    result.lowerBound = std::max(limitSeconds, 0.0);
    double within = limit < kLongest ? limit * kSlack : kLongest;
    if (!boundaries.narrow(within))
      return result;
    double relaxed = relaxedBound(sumWork(problem, stageOptions.table(), config.recompute), problem.machine, config,
                                  /*chunksAlike=*/stageOptions.hasOneKind() && !ranges.arePinned());
    lowerBound = relaxed;
    Split split{initialCounts(within), std::vector<size_t>(stages)};
    play(split);
    addSlowedCuts(split);
    for (int64_t plays = 1; (!isQuick || plays < kQuickPlays) && findNext(split); ++plays)
      play(split);
    lowerBound = std::max(lowerBound, std::min(table.lowerBound(), narrowedTo));
    if (!stageOptions.isComplete())
      lowerBound = relaxed;
    result.spent = isQuick ? 0 : given - budget;
    result.lowerBound = std::min(limitSeconds, result.seconds);
    if (lowerBound < result.lowerBound * kSlack)
      result.lowerBound = lowerBound;
    result.optionWork = stageOptions.work();
    return result;
  }

private:
  // Layers of each stage, and the option that it takes.
  struct Split {
    std::vector<int> counts;
    std::vector<size_t> options;
  };

  double incumbent() const { return std::min({limit, result.seconds}) * kSlack; }

  // Returns the split with the shortest longest stage, bounding each stage alone. Within this bound spreads work
  // evenly.
  std::vector<int> initialCounts(double within) {
    double least = lowerBound, most = within;
    for (int i = 0; i < 60 && most > least * (1 + 1e-6); ++i) {
      double middle = most >= kLongest ? 2 * least : (least + most) / 2;
      (boundaries.narrow(middle) ? most : least) = middle;
    }
    lowerBound = std::max(lowerBound, std::min(least, incumbent()));
    return balancedCounts(ranges, boundaries, stages, layers, most);
  }

  std::vector<const StageOption *> optionsOf(const Split &split) {
    std::vector<const StageOption *> list;
    for (int stage = 0, first = 0; stage < stages; first += split.counts[stage++])
      list.push_back(&ranges.options(stage, first, split.counts[stage])[split.options[stage]]);
    return list;
  }

  // Simulates a split, keeps it if it is faster, and adds its critical path as a cut.
  void play(const Split &split) {
    std::vector<const StageOption *> options = optionsOf(split);
    budget -= player.actions();
    ++result.played;
    Cut cut = player.play(options);
    if (cut.seconds < result.seconds && cut.seconds < limit)
      result.take(cut.seconds, ranges.arePinned() ? *problem.pins.stageLayers : spreadOverChunks(config, split.counts),
                  options);
    table.add(std::move(cut));
  }

  // Adds the critical paths of a split with each stage in turn twice as slow. Without these cuts, splits with one more
  // layer on some stage are ruled out one by one. If there are very many stages, a sample is enough.
  void addSlowedCuts(const Split &split) {
    int slowed = std::min(stages, kSlowed);
    if (isQuick || player.actions() * slowed > budget / 4)
      return;
    budget -= player.actions() * slowed;
    for (int i = 0; i < slowed; ++i)
      table.add(player.play(optionsOf(split), /*slow=*/i * stages / slowed));
  }

  // Finds the split nearest to the last one that no cut rules out below the incumbent. Targets halve the gap, because
  // few cuts rule out splits far below the incumbent. Returns false if there is none, or if the budget ends.
  bool findNext(Split &split) {
    while (budget > 0 && lowerBound < incumbent()) {
      bool isNear = isQuick || incumbent() - lowerBound <= kFineGap * incumbent() || budget < given / 2 ||
                    !stageOptions.isComplete();
      target = isNear ? incumbent() : (lowerBound + incumbent()) / 2;
      bool isOpen = tightenTo();
      if (isOpen && descend(split))
        return true;
      if (isOpen && budget <= 0)
        break;
      lowerBound = target;
    }
    return false;
  }

  // Narrows boundaries to the target and tabulates the cuts under it. Returns false if no split can end by the target.
  bool tightenTo() {
    bool isNew = target != narrowedTo;
    if (isNew) {
      if (!boundaries.narrow(target))
        return false;
      narrowedTo = target;
      boundaries.tabulateMost(target);
      table.reset();
      if (rows() * stageOptions.meanWork() > kMostTableWork) { // too many to examine
        budget = 0;
        return true;
      }
    }
    for (int round = 0; round < kRounds; ++round) {
      budget -= table.tabulate() / 8;
      if (table.lowerBound() > target)
        return false;
      if (!isNew || isQuick || !table.close(target))
        break;
    }
    budget -= table.tabulate() / 8;
    return table.lowerBound() <= target;
  }

  // Returns the number of layer counts with options in the table, over all stages.
  int64_t rows() const {
    int64_t count = 0;
    for (int stage = 0; stage < stages; ++stage) {
      int fewest = layers, most = 0;
      for (int first = boundaries.lowest(stage); first <= boundaries.highest(stage); ++first) {
        fewest = std::min(fewest, boundaries.leastLayers(stage, first));
        most = std::max(most, boundaries.mostLayers(stage, first));
      }
      count += std::max(0, most - fewest + 1);
    }
    return count;
  }

  // Depth-first search over stages. Tries layer counts nearest to those of the last split first.
  bool descend(Split &split) {
    previous = split.counts;
    prefix = {};
    lastViolated = table.size() - 1;
    sums.assign(stages + 1, std::vector<double>(table.size()));
    if (!descend(0))
      return false;
    split = prefix;
    return true;
  }

  // Continues with the stage below the prefix, whose layers begin at `first`.
  bool descend(int first) {
    auto stage = static_cast<int>(prefix.counts.size());
    if (budget <= 0)
      return false;
    if (stage == stages)
      return true;
    int least = boundaries.leastLayers(stage, first), most = boundaries.mostLayers(stage, first);
    int here = previous[stage];
    auto tryCount = [&](int count) { return count >= least && count <= most && descend(stage, first, count); };
    for (int away = 0; away <= std::max(here - least, most - here); ++away)
      if (tryCount(here - away) || (away > 0 && tryCount(here + away)))
        return true;
    return false;
  }

  // Assigns `count` layers to the stage, under each of its options.
  bool descend(int stage, int first, int count) {
    if (!table.isOpen(stage + 1, first + count) || !mayEnd(stage, first + count, table.least(stage, first, count)))
      return false;
    const std::vector<StageOption> &options = ranges.options(stage, first, count);
    for (size_t option = 0; option < options.size(); ++option) {
      bool isOnly = options.size() == 1; // already tested above
      if (!options[option].fits || !(isOnly || mayEnd(stage, first + count, table.under(stage, first, count, option))))
        continue;
      prefix.counts.push_back(count), prefix.options.push_back(option);
      if (descend(first + count))
        return true;
      prefix.counts.pop_back(), prefix.options.pop_back();
    }
    return false;
  }

  // Returns whether all cuts can end by the target if they take `own` on a stage whose layers end before `end`.
  // Records their partial sums. Tests the cut that was violated last first.
  bool mayEnd(int stage, int end, const double *own) {
    const double *above = sums[stage].data(), *toGo = table.costToGo(stage + 1, end);
    double *with = sums[stage + 1].data();
    --budget;
    if (above[lastViolated] + own[lastViolated] + toGo[lastViolated] > target)
      return false;
    constexpr size_t block = 16;
    for (size_t first = 0; first < table.size(); first += block) {
      size_t last = std::min(first + block, table.size());
      budget -= static_cast<int64_t>(last - first);
      bool isTooLong = false;
      for (size_t i = first; i < last; ++i) {
        with[i] = above[i] + own[i];
        isTooLong |= with[i] + toGo[i] > target;
      }
      if (!isTooLong)
        continue;
      for (lastViolated = first; with[lastViolated] + toGo[lastViolated] <= target;)
        ++lastViolated;
      return false;
    }
    return true;
  }

  const Problem &problem;
  StageOptions &stageOptions;
  SplitPlayer player;
  StageRanges ranges;
  const ParallelConfig &config;
  int stages, layers;
  bool isQuick;
  int64_t budget, given;
  double limit = kLongest;
  double lowerBound = 0;              // no split ends by it
  double target = 0, narrowedTo = -1; // target of boundaries and table
  Boundaries boundaries;
  CutTable table;
  std::vector<int> previous;             // layers of each stage in the last split
  Split prefix;                          // the first stages, in the descent
  std::vector<std::vector<double>> sums; // [stage][cut]: on the stages above
  size_t lastViolated = 0;
  SplitResult result;
};

} // namespace

void SplitResult::take(double step, std::vector<int> layers, const std::vector<const StageOption *> &options) {
  seconds = step;
  counts = std::move(layers);
  recomputed.clear();
  for (const StageOption *option : options)
    recomputed.push_back(option->recomputed);
}

SplitResult bestSplit(const Problem &problem, StageOptions &options, double limitSeconds, int64_t budget) {
  if (options.chunksPerStage() > 1 && !options.hasOneKind() && !problem.pins.stageLayers)
    return searchLocally(problem, options, limitSeconds, budget);
  return SplitSearch(problem, options, budget).run(limitSeconds);
}

} // namespace espalier::planner
