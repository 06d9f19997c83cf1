// A good split first: balanced chunks, then layers are moved from chunk to chunk as long as that helps. Then the proof:
// no chain that was the longest of a played split may be too long, nor a mean of such chains whose weights are chosen
// so that its least is largest.
#include "planner/search/split_ranges.h"

#include "planner/search/bounds.h"
#include "planner/search/chain_descent.h"
#include "planner/search/range_bounds.h"
#include "planner/search/split_chunks.h"

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
constexpr double kPriceGain = 0.02;            // of prices

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
    if (!bounds.narrow(target()))
      return result;
    playSeeds();
    climb();
    WorkSum work = sumWork(problem, stageOptions.table());
    double low = relaxedBound(work, problem.machine, axes, /*chunksAlike=*/false);
    if (weighChains() || !bounds.narrow(target()))
      low = target();
    low = std::max(low, meanBound);
    if (!isQuick && low < target())
      prove(low);
    result.spent = isQuick ? 0 : whole - budget;
    result.lowerBound = std::min(limit, result.seconds);
    if (low < target())
      result.lowerBound = std::min(result.lowerBound, low);
    return result;
  }

  // What a descent asks for (chain_descent.h): positions are chunks, and what a stage repeats is chosen at its last
  // one.

  size_t chains() const { return rests.size(); }

  bool isWithin(double seconds) {
    int before = bounds.changes();
    if (!bounds.narrow(seconds))
      return false;
    if (bounds.changes() != before)
      rests.clear();
    for (; rests.size() < known.size() && budget > 0; budget -= bounds.work()) {
      rests.push_back(bounds.rest(known[rests.size()]));
      if (rests.back().from(0, 0) > seconds)
        return false;
    }
    return true;
  }

  double rest(size_t chain, int position, int used) const { return rests[chain].from(position, used); }

  std::pair<int, int> counts(int position, int used) const { return bounds.counts(position, used); }

  bool isChosenAt(int position) const { return lastOf.at(player.stageOf(position)) == position; }

  size_t choices(const Split &split, int used) {
    int position = static_cast<int>(split.counts.size()) - 1;
    firsts[position + 1] = used;
    if (!isChosenAt(position))
      return 1;
    chosen[position] = &optionsOf(player.stageOf(position), firsts);
    return chosen[position]->front().fits ? chosen[position]->size() : 0;
  }

  bool hasAllChoices() const { return options.isComplete(); }

  double seconds(size_t chain, const Split &split, int used) const {
    int count = split.counts.back();
    return known[chain].seconds(static_cast<int>(split.counts.size()) - 1, used - count, count);
  }

  double seconds(size_t chain, const Split &split, int used, size_t choice) const {
    size_t position = split.counts.size() - 1;
    int stage = player.stageOf(static_cast<int>(position));
    return seconds(chain, split, used) + extra(known[chain], stage, firsts, (*chosen[position])[choice]);
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
    auto [place, inserted] = priced.try_emplace(std::move(key));
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

  // What a chain takes on a stage under an option beyond the least.
  double extra(const ChainMean &chain, int stage, const std::vector<int> &firsts, const ChunkOption &option) const {
    double sum = bounds.seconds(chain, stage, option);
    for (int chunk = 0; chunk < perStage; ++chunk) {
      int i = player.position(stage, chunk);
      sum -= chain.seconds(i, firsts[i], firsts[i + 1] - firsts[i]);
    }
    return sum;
  }

  // What a chain takes under a split at least.
  double leastOf(const ChainMean &chain, const std::vector<int> &firsts) const {
    double sum = 0;
    for (int i = 0; i < bounds.chunks(); ++i)
      sum += chain.seconds(i, firsts[i], firsts[i + 1] - firsts[i]);
    return sum;
  }

  // What stages do under a split; empty where it does not fit.
  std::vector<const ChunkOption *> chosenOf(const Split &split, const std::vector<int> &firsts) {
    std::vector<const ChunkOption *> list;
    for (int stage = 0; stage < axes.pp; ++stage) {
      const std::vector<ChunkOption> &choices = optionsOf(stage, firsts);
      if (!choices.front().fits)
        return {};
      list.push_back(&choices[std::min(split.choices[lastOf[stage]], choices.size() - 1)]);
    }
    return list;
  }

  // Plays a split unless a chain rules it out or it does not fit; notes its longest chain. Whether it is the best so
  // far.
  bool play(const Split &split) {
    std::vector<int> firsts = firstsOf(split.counts);
    std::vector<double> seconds(known.size()); // that each chain takes
    budget -= bounds.chunks();
    for (size_t i = known.size(); i-- > 0; budget -= bounds.chunks()) // the last ones rule out most
      if ((seconds[i] = leastOf(known[i], firsts)) > target())
        return false;
    std::vector<const ChunkOption *> options = chosenOf(split, firsts);
    if (options.empty())
      return false;
    for (size_t i = known.size(); i-- > 0;) {
      for (int stage = 0; stage < axes.pp; ++stage)
        seconds[i] += extra(known[i], stage, firsts, *options[stage]);
      if (seconds[i] > target())
        return false;
    }
    budget -= static_cast<int64_t>(player.schedule().actions());
    ++result.played;
    Chain chain = player.play(options);
    known.push_back(bounds.chainOf(chain));
    tabulate(known.back());
    if (chain.seconds >= std::min(result.seconds, limit))
      return false;
    result.seconds = chain.seconds;
    result.counts = split.counts;
    result.repeated.clear();
    for (const ChunkOption *option : options)
      result.repeated.push_back(option->repeated);
    best = split;
    return true;
  }

  void tabulate(ChainMean &chain) {
    budget -= bounds.meanWork();
    bounds.tabulate(chain, bounds.noPrices());
  }

  Split unchosen(std::vector<int> counts) const { return {std::move(counts), std::vector<size_t>(bounds.chunks())}; }

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
          if (std::exchange(split.choices[lastOf[stage]], choice) != choice)
            moved = play(split) || moved;
        }
    }
  }

  // Weights of the chains, and prices of bytes, under which the least of their mean is large: chains gain that are long
  // under the split where the mean is least, and bytes where it holds more than there is room for. That split's own
  // longest chain joins them. True when no split is shorter than the target.
  bool weighChains() {
    auto actions = static_cast<int64_t>(player.schedule().actions());
    if ((actions + bounds.meanWork()) * axes.pp + bounds.work() > budget)
      return false;
    bounds.readRoom();
    Split split = unchosen(best.counts.empty() ? bounds.balanced() : best.counts);
    LaidLayers even = bounds.lay(bounds.meanOf({}, {}), bounds.noPrices(), split.counts);
    for (int stage = 0; stage < axes.pp; ++stage)
      known.push_back(bounds.chainOf(longestOf(even, stage)));
    std::vector<double> scores(known.size());
    BytePrices shares = bounds.noPrices(), prices = shares; // shares of the bound that rooms count
    for (int i = 1; i <= (isQuick ? kQuickMeans : kMeans) && budget > 0; ++i) {
      double most = *std::ranges::max_element(scores), sum = 0;
      std::vector<double> weights;
      for (double score : scores)
        sum += weights.emplace_back(std::exp(score - most));
      for (double &weight : weights)
        weight /= sum;
      ChainMean candidate = bounds.meanOf(known, weights);
      bounds.tabulate(candidate, prices);
      RangeBounds::Rest rest = bounds.rest(candidate);
      budget -= bounds.work() + bounds.meanWork();
      double least = rest.from(0, 0);
      if (least > meanBound) {
        meanBound = least;
        mean = candidate;
      }
      if (meanBound > target())
        return true;
      LaidLayers laid = bounds.lay(candidate, prices, bounds.shortest(candidate, rest));
      known.push_back(bounds.chainOf(longestOf(laid)));
      scores.push_back(most + kNewScore);
      budget -= static_cast<int64_t>(known.size()) * bounds.chunks();
      double longest = bounds.seconds(known.back(), laid);
      for (size_t k = 0; k < known.size(); ++k)
        scores[k] += kGain / std::sqrt(i) * (bounds.seconds(known[k], laid) / longest - 1);
      for (size_t stage = 0; stage < shares.size(); ++stage)
        for (size_t moment = 0; moment < shares[stage].size(); ++moment) {
          double &share = shares[stage][moment];
          share = std::max(0.0, share + kPriceGain / std::sqrt(i) * laid.over[stage][moment]);
        }
      prices = bounds.prices(shares, longest);
    }
    return false;
  }

  // The longest chain of layers that keep so much; all take twice as long on the stage `slow`.
  Chain longestOf(const LaidLayers &laid, int slow = -1) {
    std::vector<ChunkSeconds> seconds = laid.seconds;
    for (int i = 0; i < bounds.chunks(); ++i)
      if (player.stageOf(i) == slow)
        seconds[i] = seconds[i] + seconds[i];
    budget -= static_cast<int64_t>(player.schedule().actions());
    ++result.played;
    return player.schedule().longestChain(seconds, std::vector<double>(axes.pp));
  }

  // Goes through what no chain rules out; raises `low` to what no split ends by.
  void prove(double &low) {
    for (ChainMean &chain : known)
      if (chain.before.empty())
        tabulate(chain);
    if (!mean.times.empty())
      known.push_back(mean);
    Split split = best.counts.empty() ? unchosen(bounds.balanced()) : best;
    firsts.assign(bounds.chunks() + 1, 0);
    chosen.resize(bounds.chunks());
    ChainDescent descent(*this, bounds.chunks(), budget);
    while (descent.next(target(), low, /*rises=*/false, split))
      play(split);
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
  std::map<int, int> lastOf;                                   // chunk of each stage, in model order
  std::map<std::vector<int>, std::vector<ChunkOption>> priced; // by stage and ranges
  std::vector<ChainMean> known;                                // each the longest of a split, or a mean
  std::vector<RangeBounds::Rest> rests;                        // of the first of them
  std::vector<int> firsts;                                     // of the descent: where chunks start,
  std::vector<const std::vector<ChunkOption> *> chosen;        // and the choices of the stage whose last chunk it is
  ChainMean mean;                                              // whose least is meanBound
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
