#include "planner/search/climb.h"

#include "planner/search/bounds.h"
#include "planner/search/cuts.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace espalier::planner {

namespace {

constexpr int64_t kQuickBudget = 100'000, kMostBudget = 4'000'000;
constexpr int64_t kOptionWork = 2'000; // what choosing what a layer keeps takes, in actions played
constexpr double kSlack = 1 - 1e-9;    // for rounding

class Climber {
public:
  Climber(const Problem &problem, StageOptions &stageOptions, double limit, int64_t budget)
      : problem(problem), axes(stageOptions.axes()), perStage(chunksOf(axes.schedule, axes.virtualStages)),
        options(stageOptions), player(stageOptions), limit(limit), budget(budget) {
    const CostTable &costs = stageOptions.table();
    int kept = static_cast<int>(problem.pins.recompute.value_or(Recompute::None));
    for (int kind : costs.layerKinds)
      work.push_back(work.back() + segmentSeconds(costs.kinds[kind], kept).total());
    int chunks = axes.pp * perStage;
    for (int i = 0; i < chunks; ++i) {
      edges.push_back(edgeSeconds(costs, i, axes.pp, perStage, isVShaped(axes.schedule)).total());
      bool isEnd = (i == 0 && problem.embed >= 0) || (i == chunks - 1 && problem.head >= 0);
      fewest.push_back(isEnd ? 0 : 1);
    }
  }

  SplitResult run() {
    int64_t given = budget;
    std::vector<size_t> first(axes.pp);
    play(balanced(), first);
    play(evenChunks(problem, axes), first);
    for (bool moved = !best.empty(); moved && budget > 0;)
      moved = moveLayers() || changeChoices();
    result.spent = given - budget;
    return std::move(result);
  }

private:
  // Layers of each chunk so that the longest of them is as short as can be.
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

  const std::vector<StageOption> &optionsOf(int stage, const std::vector<int> &counts) {
    std::vector<LayerRange> ranges;
    std::vector<int> key = {stage};
    for (int chunk = 0; chunk < perStage; ++chunk) {
      int i = player.position(stage, chunk);
      ranges.push_back({std::accumulate(counts.begin(), counts.begin() + i, 0), counts[i]});
      key.insert(key.end(), {ranges.back().first, ranges.back().count});
    }
    auto [place, isNew] = known.try_emplace(std::move(key));
    if (isNew) {
      for (const LayerRange &range : ranges)
        budget -= kOptionWork * range.count;
      place->second = options.choices(stage, ranges);
    }
    return place->second;
  }

  // Bytes that a stage lacks, as shares of what there is.
  double overOf(const StageOption &option) const {
    const Machine &machine = problem.machine;
    double onHost = option.hostBytes > 0 ? option.hostBytes / machine.hostShareBytes() - 1 : 0;
    return option.fits ? 0 : std::max({option.bytes / machine.memoryBytes - 1, onHost, 1e-12});
  }

  // Plays a split unless a path of another one rules it out or it does not fit. Whether it is the best so far.
  bool play(const std::vector<int> &counts, const std::vector<size_t> &chosen) {
    std::vector<const StageOption *> stages;
    double over = 0;
    for (int stage = 0; stage < axes.pp; ++stage) {
      const std::vector<StageOption> &all = optionsOf(stage, counts);
      stages.push_back(&all[std::min(chosen[stage], all.size() - 1)]);
      over += overOf(*stages.back());
    }
    if (over > 0) { // until one fits, what lacks least room is the best
      if (over >= leastOver)
        return false;
      leastOver = over;
      best = counts, choices = chosen;
      return true;
    }
    leastOver = 0;
    double target = std::min(limit, result.seconds) * kSlack;
    for (const Cut &cut : cuts) {
      double seconds = 0;
      for (int stage = 0; stage < axes.pp; ++stage)
        seconds += player.seconds(cut, stage, *stages[stage]);
      budget -= axes.pp * perStage;
      if (seconds > target)
        return false;
    }
    budget -= player.actions();
    ++result.played;
    cuts.insert(cuts.begin(), player.play(stages)); // the last ones rule out most
    if (cuts.front().seconds > target)
      return false;
    result.seconds = cuts.front().seconds;
    result.counts = best = counts;
    choices = chosen;
    result.repeated.clear();
    for (const StageOption *option : stages)
      result.repeated.push_back(option->repeated);
    return true;
  }

  // A layer from one chunk to another, the chunks between moving along.
  bool moveLayers() {
    bool moved = false;
    int last = static_cast<int>(fewest.size()) - 1;
    for (int distance = 1; distance <= last; ++distance)
      for (int first = 0; first + distance <= last && budget > 0; ++first)
        for (auto [from, to] : {std::pair(first, first + distance), std::pair(first + distance, first)}) {
          std::vector<int> counts = best;
          ++counts[to];
          if (--counts[from] >= fewest[from])
            moved = play(counts, choices) || moved;
        }
    return moved;
  }

  // Other choices of what a stage repeats.
  bool changeChoices() {
    bool moved = false;
    for (int stage = 0; stage < axes.pp; ++stage)
      for (size_t choice = 0; budget > 0 && choice < optionsOf(stage, best).size(); ++choice) {
        std::vector<size_t> chosen = choices;
        if (std::exchange(chosen[stage], choice) != choice)
          moved = play(best, chosen) || moved;
      }
    return moved;
  }

  const Problem &problem;
  const Axes &axes;
  int perStage;
  StageOptions &options;
  SplitPlayer player;
  double limit;
  int64_t budget;
  std::vector<double> work = {0}, edges; // seconds of a micro-batch: in the layers before each, beside those of a chunk
  std::vector<int> fewest;               // layers of each chunk
  std::map<std::vector<int>, std::vector<StageOption>> known; // by stage and ranges
  std::vector<Cut> cuts;
  double leastOver = std::numeric_limits<double>::infinity();
  std::vector<int> best;
  std::vector<size_t> choices; // of each stage under the best
  SplitResult result;
};

} // namespace

SplitResult climb(const Problem &problem, StageOptions &options, double limitSeconds, int64_t budget) {
  bool isQuick = budget <= 0;
  double bound = relaxedBound(sumWork(problem, options.table()), problem.machine, options.axes(),
                              /*chunksAlike=*/false);
  // A first look goes on from what beats the limit alone; later on what is slower may climb past it.
  constexpr double none = std::numeric_limits<double>::infinity();
  SplitResult result;
  if (bound < limitSeconds)
    result =
        Climber(problem, options, isQuick ? limitSeconds : none, isQuick ? kQuickBudget : std::min(budget, kMostBudget))
            .run();
  if (result.seconds >= limitSeconds) {
    result.counts.clear();
    result.seconds = none;
  }
  result.spent = isQuick ? 0 : result.spent;
  result.lowerBound = std::max(0.0, std::min({limitSeconds, result.seconds, bound}));
  return result;
}

} // namespace espalier::planner
