#include "planner/search/local_search.h"

#include "planner/search/bounds.h"
#include "planner/search/cuts.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace espalier::planner {

namespace {

constexpr int64_t kQuickBudget = 100'000, kMostBudget = 4'000'000;
constexpr int64_t kOptionWork = 2'000; // cost of one recompute choice, in simulated actions
constexpr double kSlack = 1 - 1e-9;    // for rounding

class LocalSearch {
public:
  LocalSearch(const Problem &problem, StageOptions &stageOptions, double limit, int64_t budget)
      : problem(problem), config(stageOptions.config()), perStage(stageOptions.chunksPerStage()),
        stageOptions(stageOptions), player(stageOptions), limit(limit), budget(budget) {
    known.resize(config.pp);
    const CostTable &costs = stageOptions.table();
    Recompute recompute = config.recompute.value_or(Recompute::None);
    for (int kind : costs.layerKinds)
      work.push_back(work.back() + segmentSeconds(costs.kinds[kind], recompute).total());
    int chunks = config.pp * perStage;
    for (int i = 0; i < chunks; ++i) {
      edges.push_back(edgeSeconds(costs, i, placement(config)).total());
      bool isEnd = (i == 0 && problem.embed >= 0) || (i == chunks - 1 && problem.head >= 0);
      fewest.push_back(isEnd ? 0 : 1);
    }
  }

  SplitResult run() {
    int64_t given = budget;
    std::vector<size_t> first(config.pp);
    play(balanced(), first);
    play(evenChunks(problem, config), first);
    for (bool improved = !best.empty(); improved && budget > 0;)
      improved = moveLayers() || changeOptions();
    result.spent = given - budget;
    return std::move(result);
  }

private:
  // Returns the layers of each chunk that make the longest chunk shortest. Bisects over its seconds and fills each
  // chunk up to them.
  std::vector<int> balanced() const {
    std::vector<int> counts;
    auto fill = [&](double most) {
      counts.clear();
      int layers = static_cast<int>(work.size()) - 1, first = 0;
      int behind = std::accumulate(fewest.begin(), fewest.end(), 0);
      for (size_t i = 0; i < edges.size(); first += counts[i++]) {
        behind -= fewest[i];
        int count = fewest[i];
        while (first + count < layers - behind && work[first + count + 1] - work[first] + edges[i] <= most)
          ++count;
        counts.push_back(count);
      }
      return first == layers;
    };
    double low = 0, high = work.back() + std::accumulate(edges.begin(), edges.end(), 0.0);
    for (int i = 0; i < 50; ++i)
      (fill((low + high) / 2) ? high : low) = (low + high) / 2;
    fill(high);
    return counts;
  }

  // Returns the options of a stage whose chunks begin at `firstLayers`.
  const std::vector<StageOption> &optionsOf(int stage) {
    ranges.clear();
    for (int chunk = 0; chunk < perStage; ++chunk) {
      int i = player.position(stage, chunk);
      ranges.push_back({firstLayers[i], firstLayers[i + 1] - firstLayers[i]});
    }
    auto [place, isNew] = known[stage].try_emplace(ranges);
    if (isNew) {
      for (const LayerRange &range : ranges)
        budget -= kOptionWork * range.count;
      place->second = stageOptions.options(stage, ranges);
    }
    return place->second;
  }

  void placeLayers(const std::vector<int> &counts) {
    firstLayers.assign(1, 0);
    for (int count : counts)
      firstLayers.push_back(firstLayers.back() + count);
  }

  // Returns the memory that a stage lacks, as a share of the capacity.
  double excessOf(const StageOption &option) const {
    return option.fits ? 0 : std::max(memoryShare(problem.machine, option.bytes, option.hostBytes) - 1, 1e-12);
  }

  // Simulates a split unless a cut rules it out or it does not fit. Returns whether it is the new incumbent.
  bool play(const std::vector<int> &counts, const std::vector<size_t> &chosen) {
    stages.clear();
    placeLayers(counts);
    double excess = 0;
    for (int stage = 0; stage < config.pp; ++stage) {
      const std::vector<StageOption> &all = optionsOf(stage);
      stages.push_back(&all[std::min(chosen[stage], all.size() - 1)]);
      excess += excessOf(*stages.back());
    }
    if (excess > 0) { // until a split fits, the one that lacks the least memory is the incumbent
      if (excess >= leastExcess)
        return false;
      leastExcess = excess;
      best = counts, options = chosen;
      return true;
    }
    leastExcess = 0;
    double target = std::min(limit, result.seconds) * kSlack;
    for (const Cut &cut : cuts) {
      double seconds = 0;
      for (int stage = 0; stage < config.pp; ++stage)
        seconds += player.seconds(cut, stage, *stages[stage]);
      budget -= config.pp * perStage;
      if (seconds > target)
        return false;
    }
    budget -= player.actions();
    ++result.played;
    cuts.insert(cuts.begin(), player.play(stages)); // the latest cuts rule out most
    if (cuts.front().seconds > target)
      return false;
    best = counts, options = chosen;
    result.take(cuts.front().seconds, best, stages);
    return true;
  }

  // Moves a layer from one chunk to another. The chunks between them shift.
  bool moveLayers() {
    bool improved = false;
    int last = static_cast<int>(fewest.size()) - 1;
    for (int distance = 1; distance <= last; ++distance)
      for (int first = 0; first + distance <= last && budget > 0; ++first)
        for (auto [from, to] : {std::pair(first, first + distance), std::pair(first + distance, first)}) {
          std::vector<int> counts = best;
          ++counts[to];
          if (--counts[from] >= fewest[from])
            improved = play(counts, options) || improved;
        }
    return improved;
  }

  // Tries other options of single stages.
  bool changeOptions() {
    bool improved = false;
    placeLayers(best);
    for (int stage = 0; stage < config.pp; ++stage)
      for (size_t option = 0; budget > 0 && option < optionsOf(stage).size(); ++option) {
        std::vector<size_t> chosen = options;
        if (std::exchange(chosen[stage], option) != option)
          improved = play(best, chosen) || improved;
      }
    return improved;
  }

  const Problem &problem;
  const ParallelConfig &config;
  int perStage;
  StageOptions &stageOptions;
  SplitPlayer player;
  double limit;
  int64_t budget;
  std::vector<double> work = {0},
                      edges; // seconds per micro-batch: of the layers before each; of a chunk outside its layers
  std::vector<int> fewest;   // layers of each chunk
  std::vector<std::map<std::vector<LayerRange>, std::vector<StageOption>>> known; // per stage, by its chunks
  std::vector<int> firstLayers;            // first layer of each chunk in the current split
  std::vector<LayerRange> ranges;          // of the current stage
  std::vector<const StageOption *> stages; // of the current split
  std::vector<Cut> cuts;
  double leastExcess = kInfinity;
  std::vector<int> best;       // layers of each chunk in the incumbent
  std::vector<size_t> options; // option of each stage in it
  SplitResult result;
};

} // namespace

SplitResult searchLocally(const Problem &problem, StageOptions &options, double limitSeconds, int64_t budget) {
  bool isQuick = budget <= 0;
  double bound =
      relaxedBound(sumWork(problem, options.table(), options.config().recompute), problem.machine, options.config(),
                   /*chunksAlike=*/false);
  // A first search continues only from splits that beat the limit. Later searches may also improve slower splits past
  // it.
  SplitResult result;
  if (bound < limitSeconds)
    result = LocalSearch(problem, options, isQuick ? limitSeconds : kInfinity,
                         isQuick ? kQuickBudget : std::min(budget, kMostBudget))
                 .run();
  if (result.seconds >= limitSeconds) {
    result.counts.clear();
    result.seconds = kInfinity;
  }
  result.spent = isQuick ? 0 : result.spent;
  result.optionWork = options.work();
  result.lowerBound = std::max(0.0, std::min({limitSeconds, result.seconds, bound}));
  return result;
}

} // namespace espalier::planner
