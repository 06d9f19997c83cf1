// A good split first: balanced chunks, then layers are moved from chunk to chunk as long as that helps. Then the proof:
// no chain that was the longest of a played split may be too long, nor a mean of such chains whose weights are chosen
// so that its least is largest.
#include "planner/split_ranges.h"

#include "planner/range_bounds.h"
#include "planner/split_chunks.h"
#include "planner/work_bounds.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace espalier::planner {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSlack = 1 - 1e-9; // for rounding
constexpr int64_t kQuickBudget = 100'000;
constexpr int64_t kOptionWork = 2'000; // what choosing what a layer keeps takes, in sums compared
constexpr int64_t kMostBudget = 4'000'000;
constexpr int kQuickMeans = 40, kMeans = 100;  // weights of chains that are tried
constexpr double kGain = 0.35, kNewScore = -2; // of weights: they settle in about a hundred steps

// Layers of each chunk in model order, and which of the choices of what they repeat each stage takes.
struct Split {
  std::vector<int> counts;
  std::vector<size_t> choices;
};

class RangeSearch {
public:
  RangeSearch(const Problem &problem, StageOptions &stageOptions, int64_t budget)
      : problem(problem), stageOptions(stageOptions), axes(stageOptions.axes()),
        perStage(chunksOf(axes.schedule, axes.virtualStages)), isQuick(budget <= 0),
        budget(isQuick ? kQuickBudget : std::min(budget, kMostBudget)), options(problem, stageOptions),
        player(stageOptions), bounds(problem, stageOptions, player) {
    for (int position = 0; position < bounds.chunks(); ++position)
      lastOf[player.stageOf(position)] = position;
  }

  SplitResult run(double limitSeconds) {
    limit = limitSeconds;
    int64_t whole = budget;
    result.lowerBound = std::max(limit, 0.0);
    if (!bounds.narrow(std::min(limit * kSlack, std::numeric_limits<double>::max())))
      return result;
    playSeeds();
    climb();
    bool complete = weighChains() || !bounds.narrow(target());
    if (!isQuick && !complete)
      complete = prove() && options.isComplete();
    result.spent = isQuick ? 0 : whole - budget;
    result.lowerBound = std::min(limit, result.seconds);
    if (!complete) {
      WorkSum work = sumWork(problem, stageOptions.table());
      double bound = std::max(meanBound, relaxedBound(work, problem.machine, axes, /*chunksAlike=*/false));
      result.lowerBound = std::min(result.lowerBound, bound);
    }
    return result;
  }

private:
  double target() const { return std::min({limit, result.seconds, std::numeric_limits<double>::max()}) * kSlack; }

  const std::vector<ChunkOption> &optionsOf(int stage, const std::vector<int> &firsts) {
    std::vector<int> key = {stage};
    std::vector<LayerRange> ranges;
    for (int chunk = 0; chunk < perStage; ++chunk) {
      int i = player.position(stage, chunk);
      ranges.push_back({firsts[i], firsts[i + 1] - firsts[i]});
      key.insert(key.end(), {ranges.back().first, ranges.back().count});
    }
    auto [place, inserted] = known.try_emplace(std::move(key));
    if (inserted) {
      for (const LayerRange &range : ranges)
        budget -= kOptionWork * range.count;
      place->second = options.choices(stage, ranges);
    }
    return place->second;
  }

  static std::vector<int> firstsOf(const std::vector<int> &counts) {
    std::vector<int> firsts(counts.size() + 1);
    std::partial_sum(counts.begin(), counts.end(), firsts.begin() + 1);
    return firsts;
  }

  // What a chain takes on a stage under an option beyond what its layers take that repeat least.
  double extra(const ChainMean &chain, int stage, const std::vector<int> &firsts, const ChunkOption &option) const {
    double sum = chain.ends[stage] * option.stepSeconds;
    for (int chunk = 0; chunk < perStage; ++chunk) {
      int i = player.position(stage, chunk);
      int count = firsts[i + 1] - firsts[i];
      ChunkSeconds least = bounds.least(firsts[i], count);
      sum -= chain.ends[stage] * bounds.leastStep(i, firsts[i], count);
      sum += chain.times[i][0] * (option.seconds[chunk].forward - least.forward) +
             chain.times[i][1] * (option.seconds[chunk].backward - least.backward) +
             chain.times[i][2] * (option.seconds[chunk].weight - least.weight);
    }
    return sum;
  }

  // What a chain takes under a split that repeats least.
  double leastOf(const ChainMean &chain, const std::vector<int> &firsts) const {
    double sum = 0;
    for (int i = 0; i < bounds.chunks(); ++i)
      sum += bounds.seconds(chain, i, firsts[i], firsts[i + 1] - firsts[i]);
    return sum;
  }

  // Plays a split unless a chain rules it out or it does not fit; notes its longest chain. Whether it is the best so
  // far.
  bool play(const Split &split) {
    std::vector<int> firsts = firstsOf(split.counts);
    std::vector<double> seconds(chains.size()); // that each chain takes
    budget -= bounds.chunks();
    for (size_t i = chains.size(); i-- > 0; budget -= bounds.chunks()) // the last ones rule out most
      if ((seconds[i] = leastOf(chains[i], firsts)) > target())
        return false;
    std::vector<const ChunkOption *> chosen;
    for (int stage = 0; stage < axes.pp; ++stage) {
      const std::vector<ChunkOption> &choices = optionsOf(stage, firsts);
      if (!choices.front().fits)
        return false;
      chosen.push_back(&choices[std::min(split.choices[stage], choices.size() - 1)]);
    }
    for (size_t i = chains.size(); i-- > 0;) {
      for (int stage = 0; stage < axes.pp; ++stage)
        seconds[i] += extra(chains[i], stage, firsts, *chosen[stage]);
      if (seconds[i] > target())
        return false;
    }
    budget -= static_cast<int64_t>(player.schedule().actions());
    ++result.played;
    Chain chain = player.play(chosen);
    chains.push_back(bounds.chainOf(chain));
    if (chain.seconds >= std::min(result.seconds, limit))
      return false;
    result.seconds = chain.seconds;
    result.counts = split.counts;
    result.repeated.clear();
    for (const ChunkOption *option : chosen)
      result.repeated.push_back(option->repeated);
    best = split;
    return true;
  }

  Split unchosen(std::vector<int> counts) const { return {std::move(counts), std::vector<size_t>(axes.pp)}; }

  // Balanced chunks, and equally many layers for each: where memory is scarce the first may not fit.
  void playSeeds() {
    play(unchosen(bounds.balanced()));
    play(unchosen(evenChunks(problem, axes)));
  }

  // Moves layers between chunks, and takes other choices of what a stage repeats, as long as that helps.
  void climb() {
    int64_t rest = budget / 2; // for the proof
    int last = bounds.chunks() - 1;
    for (bool moved = !best.counts.empty(); moved;) {
      moved = false;
      for (int distance = 1; distance <= last; ++distance)
        for (int first = 0; first + distance <= last && budget > rest; ++first)
          for (auto [from, to] : {std::pair(first, first + distance), std::pair(first + distance, first)}) {
            Split split = best;
            ++split.counts[to];
            if (--split.counts[from] >= bounds.fewestOf(from))
              moved = play(split) || moved;
          }
      for (int stage = 0; stage < axes.pp; ++stage)
        for (size_t choice = 0; budget > rest && choice < optionsOf(stage, firstsOf(best.counts)).size(); ++choice) {
          Split split = best;
          if (std::exchange(split.choices[stage], choice) != choice)
            moved = play(split) || moved;
        }
    }
  }

  // Weights of the chains under which the least of their mean is large: those gain that are long under the split where
  // the mean is least. That split's own longest chain joins them. True when no split is shorter than the target.
  bool weighChains() {
    auto actions = static_cast<int64_t>(player.schedule().actions());
    if (actions * axes.pp + bounds.work() > budget)
      return false;
    std::vector<int> balanced = firstsOf(best.counts.empty() ? bounds.balanced() : best.counts);
    for (int stage = 0; stage < axes.pp; ++stage)
      chains.push_back(longestUnder(balanced, stage));
    std::vector<double> scores(chains.size());
    for (int i = 1; i <= (isQuick ? kQuickMeans : kMeans) && budget > 0; ++i) {
      double most = *std::ranges::max_element(scores), sum = 0;
      std::vector<double> weights;
      for (double score : scores)
        sum += weights.emplace_back(std::exp(score - most));
      for (double &weight : weights)
        weight /= sum;
      ChainMean candidate = RangeBounds::meanOf(chains, weights);
      RangeBounds::Rest rest = bounds.rest(candidate);
      budget -= bounds.work();
      double least = rest.from(0, 0);
      if (least > meanBound) {
        meanBound = least;
        mean = candidate;
      }
      if (meanBound > target())
        return true;
      std::vector<int> firsts = firstsOf(bounds.shortest(candidate, rest));
      chains.push_back(longestUnder(firsts));
      scores.push_back(most + kNewScore);
      budget -= static_cast<int64_t>(chains.size()) * bounds.chunks();
      double longest = leastOf(chains.back(), firsts);
      for (size_t k = 0; k < chains.size(); ++k)
        scores[k] += kGain / std::sqrt(i) * (leastOf(chains[k], firsts) / longest - 1);
    }
    return false;
  }

  // The longest chain of a split whose layers repeat least, without what runs once per step.
  ChainMean longestUnder(const std::vector<int> &firsts, int slow = -1) {
    std::vector<ChunkSeconds> seconds;
    for (int i = 0; i < bounds.chunks(); ++i) {
      seconds.push_back(bounds.least(firsts[i], firsts[i + 1] - firsts[i]) + player.edges()[i]);
      if (player.stageOf(i) == slow)
        seconds.back() = seconds.back() + seconds.back();
    }
    budget -= static_cast<int64_t>(player.schedule().actions());
    ++result.played;
    return bounds.chainOf(player.schedule().longestChain(seconds, std::vector<double>(axes.pp)));
  }

  // Goes through what no chain rules out. True when nothing is left.
  bool prove() {
    std::vector<RangeBounds::Rest> rests;
    int changes = bounds.changes();
    Split split = best.counts.empty() ? unchosen(bounds.balanced()) : best;
    if (!mean.times.empty())
      chains.push_back(mean);
    while (budget > 0) {
      if (!bounds.narrow(target()))
        return true;
      if (bounds.changes() != changes)
        rests.clear();
      changes = bounds.changes();
      for (; rests.size() < chains.size() && budget > 0; budget -= bounds.work())
        rests.push_back(bounds.rest(chains[rests.size()]));
      Descent descent{rests, split, {}, {0}, {}, rests.empty() ? 0 : rests.size() - 1};
      descent.found.choices.resize(axes.pp);
      descent.sums.assign(2 * bounds.chunks() + 1, std::vector<double>(rests.size()));
      if (!descend(descent, 0, 0))
        return budget > 0;
      split = descent.found;
      play(split);
    }
    return false;
  }

  // A way down through the chunks, under which no chain is too long.
  struct Descent {
    const std::vector<RangeBounds::Rest> &rests; // of the first chains
    const Split &near;                           // what is tried first
    Split found;
    std::vector<int> firsts;
    std::vector<std::vector<double>> sums; // of each chain down to here, by depth
    size_t strictest = 0;                  // the chain that ruled the last one out
  };

  // Whether no chain is too long when `add(i)` comes to chain i at this depth, and the least of what follows.
  template <typename Add> bool mayFollow(Descent &descent, int depth, int position, int first, Add add) {
    const std::vector<double> &sums = descent.sums[depth];
    std::vector<double> &with = descent.sums[depth + 1];
    auto isTooLong = [&](size_t i) {
      --budget;
      with[i] = sums[i] + add(chains[i]);
      return with[i] + descent.rests[i].from(position, first) > target();
    };
    if (descent.rests.empty())
      return true;
    if (isTooLong(descent.strictest))
      return false;
    for (size_t i = 0; i < descent.rests.size(); ++i)
      if (isTooLong(i)) {
        descent.strictest = i;
        return false;
      }
    return true;
  }

  bool descend(Descent &descent, int position, int depth) {
    if (budget < 0)
      return false;
    if (position == bounds.chunks())
      return true;
    int first = descent.firsts.back(), stage = player.stageOf(position);
    auto [least, most] = bounds.counts(position, first);
    std::vector<int> order(std::max(most - least + 1, 0));
    std::iota(order.begin(), order.end(), least);
    int near = descent.near.counts[position];
    std::ranges::sort(order, {}, [&](int count) { return std::pair(std::abs(count - near), count); });
    for (int count : order) {
      if (!mayFollow(descent, depth, position + 1, first + count,
                     [&](const ChainMean &chain) { return bounds.seconds(chain, position, first, count); }))
        continue;
      descent.found.counts.push_back(count);
      descent.firsts.push_back(first + count);
      bool isFound =
          lastOf[stage] == position ? choose(descent, stage, depth + 1) : descend(descent, position + 1, depth + 1);
      if (isFound)
        return true;
      descent.found.counts.pop_back();
      descent.firsts.pop_back();
    }
    return false;
  }

  // Goes on behind the last chunk of a stage, with each choice of what the stage repeats.
  bool choose(Descent &descent, int stage, int depth) {
    const std::vector<ChunkOption> &choices = optionsOf(stage, descent.firsts);
    int position = static_cast<int>(descent.found.counts.size());
    for (size_t i = 0; i < choices.size() && choices[i].fits; ++i) {
      if (!mayFollow(descent, depth, position, descent.firsts.back(),
                     [&](const ChainMean &chain) { return extra(chain, stage, descent.firsts, choices[i]); }))
        continue;
      descent.found.choices[stage] = i;
      if (descend(descent, position, depth + 1))
        return true;
    }
    return false;
  }

  const Problem &problem;
  StageOptions &stageOptions;
  const Plan &axes;
  int perStage;
  bool isQuick;
  int64_t budget;
  ChunkOptions options;
  ChunkPlayer player;
  RangeBounds bounds;
  std::map<int, int> lastOf;                                  // chunk of each stage, in model order
  std::map<std::vector<int>, std::vector<ChunkOption>> known; // by stage and ranges
  std::vector<ChainMean> chains;                              // each the longest of a split, or a mean
  ChainMean mean;                                             // whose least is meanBound
  double meanBound = 0;
  double limit = kInfinity;
  Split best;
  SplitResult result;
};

} // namespace

SplitResult bestRanges(const Problem &problem, StageOptions &options, double limitSeconds, int64_t budget) {
  return RangeSearch(problem, options, budget).run(limitSeconds);
}

} // namespace espalier::planner
