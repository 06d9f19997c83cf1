// The bound of a split is the longest chain through one stage: first forwards down to it, all its
// work, last backwards up from it (simulate.h), and what the first stage does once per step behind
// that. For a target time T only the sum of the upper stages matters, so a table over (stage,
// layers used) decides T exactly.
#include "planner/split_layers.h"

#include <algorithm>
#include <cmath>

namespace espalier::planner {

double playedStepSeconds(const ScheduleTable &table, const std::vector<ChunkSeconds> &chunks,
                         const std::vector<double> &stepSeconds) {
  Played played = play(table, chunks);
  double seconds = 0;
  for (size_t stage = 0; stage < stepSeconds.size(); ++stage)
    seconds = std::max(seconds, played.endSeconds[stage] + stepSeconds[stage]);
  return seconds;
}

WorkSum sumWork(const Problem &problem, const CostTable &table) {
  WorkSum sum;
  sum.boundarySeconds = table.boundarySeconds;
  auto add = [&](const SegmentCost &cost, double least, double most, double count, double transfer = 0) {
    double forward = cost.forward.total() + transfer, rest = cost.backward.total() + cost.weight.total();
    sum.work += count * (forward + rest + least);
    sum.weights += count * cost.weight.total();
    sum.once += count * cost.step.total();
    if (forward + rest + most > 0)
      sum.forwardShare = std::min(sum.forwardShare, forward / (forward + rest + most));
  };
  if (problem.embed >= 0)
    add(table.embed, 0, 0, 1);
  if (problem.head >= 0)
    add(table.head, 0, 0, 1);
  for (const LayerRun &run : problem.layers) {
    const SegmentCost &cost = table.kinds[run.kind];
    int recompute = static_cast<int>(table.commonRecompute.value_or(Recompute::None));
    double least = cost.recompute[recompute].total(), most = least;
    for (int other = 0; !table.commonRecompute && other < 3; ++other)
      most = std::max(most, cost.recompute[other].total());
    add(cost, least, most, run.count, cost.forwardTransfer[recompute]);
  }
  return sum;
}

double relaxedBound(const WorkSum &sum, const Plan &axes) {
  double work = sum.work;
  int chunks = chunksOf(axes.schedule, axes.virtualStages);
  if (chunks == 1)
    work += 2 * (axes.pp - 1) * sum.boundarySeconds;
  double m = static_cast<double>(axes.microBatches), p = axes.pp;
  double bound = (m * work + sum.once) / p;
  // All forwards, then all backwards: one micro-batch through all stages and the longest forward and
  // backward, which are at least the mean, m - 1 times more.
  if (axes.schedule == Schedule::GPipe)
    return std::max(bound, work * (m + p - 1) / p);
  // Stage s waits for the first micro-batch: forwards of the stages above, of one chunk each. Equal
  // chains of m t_s + share * sum over i < s of t_i <= T have t_s = T / m (1 - share / m)^s, whose
  // sum is the work. Without split weights the last backward goes up again: share 1. Both ways of a
  // send count as much as forward and backward do, so they are left out of the share. The V returns
  // to the first stage: no wait.
  double share = axes.schedule == Schedule::OneFOneB                   ? 1
                 : sum.boundarySeconds > 0 || isVShaped(axes.schedule) ? 0
                                                                       : sum.forwardShare / chunks;
  if (share <= 0)
    return bound;
  return std::max(bound, share * work / (1 - std::pow(1 - share / m, p)));
}

namespace {

constexpr int64_t kNodeCost = 20; // a step of the descent costs about as much as playing this many actions
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class SplitSearch {
public:
  SplitSearch(const Problem &problem, StageOptions &options, int64_t budget)
      : problem(problem), options(options), axes(options.axes()), stages(axes.pp),
        layers(static_cast<int>(options.table().layerKinds.size())), budget(budget) {
    splitsBackward = planner::splitsBackward(axes.schedule);
    WorkSum sum = sumWork(problem, options.table());
    through = sum.work - (splitsBackward ? sum.weights : 0) + 2 * (stages - 1) * sum.boundarySeconds;
    leastFirstStep = options.best(0, 0, 1).stepSeconds;
    for (int stage = 0; stage < stages; ++stage)
      edges.push_back(edgeSeconds(options.table(), stage, stages, 1, false));
  }

  SplitResult run(double limit) {
    SplitResult result;
    double low = std::min(limit, relaxedBound(sumWork(problem, options.table()), axes)) * (1 - 1e-9);
    std::vector<int> counts = firstSplit(low, limit);
    if (counts.empty()) {
      result.lowerBound = limit;
      return result;
    }
    double high = chainBound(counts);
    tighten(low, high, counts);
    result.lowerBound = low;
    take(counts, result);
    if (budget > 0 && result.seconds > low * (1 + 2e-9))
      exhaust(limit, result);
    if (result.seconds <= result.lowerBound * (1 + 2e-9))
      result.lowerBound = result.seconds;
    return result;
  }

private:
  ChunkSeconds secondsOf(int stage, int first, int count, const StageOption &option) const {
    const ChunkSeconds &edge = edges[stage], &inner = option.seconds;
    return {inner.forward + edge.forward, inner.backward + edge.backward, inner.weight + edge.weight};
  }

  // What a stage adds to the chains of the stages below it.
  double passing(const ChunkSeconds &seconds) const {
    return seconds.forward + seconds.backward + (splitsBackward ? 0 : seconds.weight);
  }

  // All work of a stage before its last backward ends.
  double chain(int stage, const ChunkSeconds &seconds) const {
    double m = static_cast<double>(axes.microBatches);
    double weights = splitsBackward ? std::max(0.0, m - 1 - stage) : m;
    return m * (seconds.forward + seconds.backward) + weights * seconds.weight;
  }

  // What holds for a stage whatever the others do: all its work and what it does once per step; and
  // one micro-batch through the whole pipeline, beside the actions that the order of the stage puts
  // before it comes back (first micro-batch) or after it leaves (last micro-batch). With k
  // micro-batches in flight, 1F1B has m - k forwards after its first backward and m - k backwards
  // before its last forward.
  double alone(int stage, const ChunkSeconds &seconds, const StageOption &option) const {
    double m = static_cast<double>(axes.microBatches);
    double bound = m * seconds.total() + option.stepSeconds;
    double step = stage == 0 ? option.stepSeconds : leastFirstStep;
    double forward = seconds.forward, backward = seconds.backward + (splitsBackward ? 0 : seconds.weight);
    if (axes.schedule == Schedule::GPipe)
      return std::max(bound, through + step + (m - 1) * (forward + backward));
    double others = m - std::min<double>(m, stages - stage);
    double weights = splitsBackward ? std::max(0.0, m - 1 - stage) * seconds.weight : 0;
    bound = std::max(bound, through + step + (m - 1) * backward + others * forward + weights);
    return std::max(bound, through + step + (m - 1) * forward + others * backward);
  }

  double chainBound(const std::vector<int> &counts) {
    double bound = 0, prefix = 0;
    for (int stage = 0, first = 0; stage < stages; first += counts[stage++]) {
      const StageOption &option = options.best(stage, first, counts[stage]);
      ChunkSeconds seconds = secondsOf(stage, first, counts[stage], option);
      if (stage == 0)
        prefix = option.stepSeconds;
      bound = std::max({bound, prefix + chain(stage, seconds), alone(stage, seconds, option)});
      prefix += passing(seconds);
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

  // Any split whose chains end by `limit`. Small targets are quick to decide, so they come first.
  // Raises `low` to what no split reaches.
  std::vector<int> firstSplit(double &low, double limit) {
    double least = low;
    for (double target = low * 1.02; target < limit && target < 16 * least; target *= 1.2) {
      std::vector<int> counts = decide(target);
      if (!counts.empty())
        return counts;
      low = target;
    }
    return decide(limit);
  }

  bool isInTime(int stage, int first, int count, double target) {
    const StageOption &option = options.best(stage, first, count);
    return option.fits && alone(stage, secondsOf(stage, first, count, option), option) <= target;
  }

  // Layers that may be used before each stage so that those above and those below it can respect T alone: a part of a
  // range that does so does so, too, hence the longest ranges from both ends bound them. False when nothing is left.
  bool narrow(double target) {
    lowest.assign(stages + 1, 0);
    highest.assign(stages + 1, layers);
    if (problem.pins.stageLayers)
      return true;
    highest[0] = 0;
    lowest[stages] = layers;
    for (int stage = 0; stage < stages; ++stage) {
      int first = highest[stage], after = stages - stage - 1, end = first;
      while (end < layers - after && isInTime(stage, first, end + 1 - first, target))
        ++end;
      if (end == first)
        return false;
      highest[stage + 1] = end;
    }
    for (int stage = stages - 1; stage > 0; --stage) {
      int end = lowest[stage + 1], first = end;
      while (first > stage && isInTime(stage, first - 1, end - first + 1, target))
        --first;
      if (first == end)
        return false;
      lowest[stage] = first;
    }
    for (int stage = 0; stage <= stages; ++stage)
      if (lowest[stage] > highest[stage])
        return false;
    return true;
  }

  // Calls visit(count, chain, passing, step) for the options of a stage that fit and respect T
  // alone; longer ranges only take longer, so the first that is too slow ends the loop.
  template <typename Visit> void visitOptions(int stage, int first, double target, Visit visit) {
    auto [least, most] = range(stage, layers - first);
    least = std::max(least, lowest[stage + 1] - first);
    most = std::min(most, highest[stage + 1] - first);
    for (int count = std::max(least, 1); count <= most; ++count) {
      const StageOption &option = options.best(stage, first, count);
      if (!option.fits)
        break; // more layers need more bytes
      ChunkSeconds seconds = secondsOf(stage, first, count, option);
      if (alone(stage, seconds, option) > target)
        break;
      visit(count, chain(stage, seconds), passing(seconds), option.stepSeconds);
    }
  }

  // A split whose chains all end by `target`, or none: least[stage][used] is the least sum of upper
  // stages.
  std::vector<int> decide(double target) {
    if (!narrow(target))
      return {};
    std::vector<std::vector<double>> least(stages + 1, std::vector<double>(layers + 1, kInfinity));
    std::vector<std::vector<int>> choice(stages + 1, std::vector<int>(layers + 1, 0));
    least[0][0] = 0;
    for (int stage = 0; stage < stages; ++stage)
      for (int used = lowest[stage]; used <= highest[stage]; ++used) {
        double prefix = least[stage][used];
        if (prefix == kInfinity)
          continue;
        visitOptions(stage, used, target, [&](int count, double chain, double passing, double step) {
          double start = stage == 0 ? step : prefix;
          if (start + chain <= target && start + passing < least[stage + 1][used + count]) {
            least[stage + 1][used + count] = start + passing;
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

  // Plays a split and keeps it when it is faster.
  void take(const std::vector<int> &counts, SplitResult &result) {
    std::vector<ChunkSeconds> chunks;
    std::vector<double> steps;
    for (int stage = 0, first = 0; stage < stages; first += counts[stage++]) {
      const StageOption &option = options.best(stage, first, counts[stage]);
      chunks.push_back(secondsOf(stage, first, counts[stage], option));
      steps.push_back(option.stepSeconds);
    }
    if (schedule.stages.empty())
      schedule = buildSchedule(axes.schedule, stages, static_cast<int>(axes.microBatches));
    double seconds = playedStepSeconds(schedule, chunks, steps);
    ++result.played;
    if (seconds < result.seconds) {
      result.seconds = seconds;
      result.counts = counts;
    }
  }

  // Plays every split whose bound is below the best; slack[stage][used] is the largest sum of upper
  // stages from which the rest can still end in time.
  void exhaust(double limit, SplitResult &result) {
    double target = std::min(limit, result.seconds) * (1 - 1e-9);
    if (!narrow(target)) { // no split is faster than the one that was played
      result.lowerBound = std::min(result.seconds, limit);
      return;
    }
    std::vector<std::vector<double>> slack(stages + 1, std::vector<double>(layers + 1, -kInfinity));
    slack[stages][layers] = kInfinity;
    for (int stage = stages - 1; stage >= 0; --stage)
      for (int used = lowest[stage]; used <= highest[stage]; ++used)
        visitOptions(stage, used, target, [&](int count, double chain, double passing, double) {
          double most = std::min(target - chain, slack[stage + 1][used + count] - passing);
          slack[stage][used] = std::max(slack[stage][used], most);
        });
    std::vector<int> counts;
    bool complete = descend(0, 0, 0, limit, slack, counts, result);
    if (complete) // every split that was not played has a bound above the best
      result.lowerBound = std::min(result.seconds, limit);
  }

  bool descend(int used, int stage, double prefix, double limit, const std::vector<std::vector<double>> &slack,
               std::vector<int> &counts, SplitResult &result) {
    budget -= kNodeCost;
    if (budget < 0)
      return false;
    if (stage == stages) {
      budget -= axes.microBatches * stages * 2;
      take(counts, result);
      return true;
    }
    bool complete = true;
    visitOptions(stage, used, limit, [&](int count, double chain, double passing, double step) {
      double target = std::min(limit, result.seconds) * (1 - 1e-9);
      double start = stage == 0 ? step : prefix;
      if (!complete || start + chain > target || start + passing > slack[stage + 1][used + count])
        return;
      counts.push_back(count);
      complete = descend(used + count, stage + 1, start + passing, limit, slack, counts, result);
      counts.pop_back();
    });
    return complete;
  }

  const Problem &problem;
  StageOptions &options;
  const Plan &axes;
  int stages, layers;
  int64_t budget;
  bool splitsBackward = false;
  double through = 0;               // least time of one micro-batch down and up, split weights left out
  std::vector<int> lowest, highest; // layers used before each stage, for the last target narrowed to
  double leastFirstStep = 0;        // least work once per step of the first stage
  ScheduleTable schedule;           // built when the first split is played
  std::vector<ChunkSeconds> edges;  // per stage
};

// All chunks have the same number of layers, so there is one split.
SplitResult evenChunks(const Problem &problem, StageOptions &options, double limit) {
  const Plan &axes = options.axes();
  SplitResult result;
  result.lowerBound = std::max(limit, 0.0);
  int chunksPerStage = chunksOf(axes.schedule, axes.virtualStages), chunks = chunksPerStage * axes.pp;
  int layers = static_cast<int>(options.table().layerKinds.size());
  const std::vector<int> &kinds = options.table().layerKinds;
  if (layers % chunks != 0 || std::count(kinds.begin(), kinds.end(), kinds.front()) != layers)
    return result;
  int count = layers / chunks;
  bool vShape = isVShaped(axes.schedule);
  std::vector<ChunkSeconds> seconds(chunks);
  std::vector<double> steps(axes.pp), busy(axes.pp);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    int stage = stageOfChunk(chunk, axes.pp, chunksPerStage, vShape);
    const StageOption &option = options.best(stage, chunk * count, count);
    if (!option.fits)
      return result;
    ChunkSeconds edge = edgeSeconds(options.table(), chunk, axes.pp, chunksPerStage, vShape);
    seconds[chunk] = {option.seconds.forward + edge.forward, option.seconds.backward + edge.backward,
                      option.seconds.weight + edge.weight};
    steps[stage] = option.stepSeconds;
    busy[stage] += static_cast<double>(axes.microBatches) * seconds[chunk].total();
  }
  for (int stage = 0; stage < axes.pp; ++stage)
    if (busy[stage] + steps[stage] >= limit) // no order of its actions is short enough
      return result;
  ScheduleTable table = buildSchedule(axes.schedule, axes.pp, static_cast<int>(axes.microBatches), axes.virtualStages);
  double played = playedStepSeconds(table, seconds, steps);
  result.played = 1;
  if (played < limit) {
    result.seconds = result.lowerBound = played;
    result.counts.assign(chunks, count);
  }
  return result;
}

} // namespace

SplitResult bestSplit(const Problem &problem, StageOptions &options, double limitSeconds, int64_t budget) {
  const Plan &axes = options.axes();
  if (chunksOf(axes.schedule, axes.virtualStages) > 1)
    return evenChunks(problem, options, limitSeconds);
  return SplitSearch(problem, options, budget).run(limitSeconds);
}

} // namespace espalier::planner
