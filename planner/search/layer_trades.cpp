#include "planner/search/layer_trades.h"

#include "planner/search/kind_costs.h"
#include "planner/search/stage_options.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace espalier::planner {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool areLocal(const PatternTerms &terms) {
  return std::ranges::all_of(terms.compute,
                             [](const ComputeTerm &t) {
                               return isLocalSize(t.m) && isLocalSize(t.n) && isLocalSize(t.k) &&
                                      isLocalSize(t.count) && isLocalSize(t.operations) && isLocalSize(t.bytes);
                             }) &&
         std::ranges::all_of(terms.savedBytes, isLocalSize) && isLocalSize(terms.keptCollectiveBytes) &&
         std::ranges::all_of(terms.collectives, [](const CollectiveTerm &t) { return isLocalSize(t.bytes); }) &&
         std::ranges::all_of(terms.parameters, [](const ParameterTerm &t) { return isLocalSize(t.elements); });
}

// How many micro-batches of whichever of two chunks are held at least, in some mean of moments.
double heldOfEither(const HeldChunks &moments) {
  double most = 0;
  for (const std::vector<int> &one : moments)
    for (const std::vector<int> &other : moments) {
      double before = one[0] - one[1], behind = other[1] - other[0];
      bool isBetween = before > 0 && behind > 0; // there both are held equally often
      double held = isBetween ? one[1] + before / (before + behind) * (other[1] - one[1]) : std::min(one[0], one[1]);
      most = std::max(most, held);
    }
  return most;
}

} // namespace

MicroBatchTerms::MicroBatchTerms(const Problem &problem) {
  reduced.dimensions = problem.dimensions;
  reduced.machine = problem.machine;
  reduced.pins = problem.pins;
  reduced.layers = problem.layers;
  reduced.embed = problem.embed;
  reduced.head = problem.head;
  for (const SegmentKind &kind : problem.kinds) {
    SegmentKind local{kind.name, {}};
    std::vector<PatternTerms> bare; // without patterns
    Kinds kinds{static_cast<int>(reduced.kinds.size()), {}, {}, {}};
    for (const PatternTerms &terms : kind.patterns) {
      PatternTerms part;
      part.savedBytes = terms.savedBytes;
      part.keptCollectiveBytes = terms.keptCollectiveBytes;
      part.parameters = terms.parameters;
      std::ranges::copy_if(terms.compute, std::back_inserter(part.compute),
                           [](const ComputeTerm &t) { return t.phase != Phase::Step; });
      bool isWhole = true;
      for (const CollectiveTerm &term : terms.collectives) {
        bool isInside = term.axis != Axis::Dp && term.axis != Axis::Pp;
        isWhole = isWhole && (isInside || term.phase == Phase::Step);
        if (isInside && term.phase != Phase::Step)
          part.collectives.push_back(term);
      }
      auto same = std::ranges::find(bare, part);
      kinds.group.push_back(static_cast<int>(same - bare.begin()));
      kinds.isLocal.push_back(areLocal(part));
      kinds.isWhole.push_back(isWhole);
      bare.push_back(part);
      part.pattern = terms.pattern;
      local.patterns.push_back(std::move(part));
    }
    reduced.kinds.push_back(std::move(local));
    auto isAlike = [&](const Kinds &other) {
      return other == kinds && std::ranges::equal(problem.kinds[other.first].patterns, kind.patterns, {},
                                                  &PatternTerms::pattern, &PatternTerms::pattern);
    };
    if (std::ranges::none_of(unlike, isAlike))
      unlike.push_back(std::move(kinds));
  }
}

int MicroBatchTerms::patternOf(const Kinds &kinds, const Plan &plan) const {
  const std::vector<PatternTerms> &patterns = reduced.kinds[kinds.first].patterns;
  auto found = std::ranges::find_if(patterns, [&](const PatternTerms &t) { return matches(t.pattern, plan); });
  return found == patterns.end() ? -1 : static_cast<int>(found - patterns.begin());
}

std::vector<int64_t> MicroBatchTerms::keyOf(const Plan &plan) const {
  std::vector<int64_t> key = {plan.tp,
                              plan.cp,
                              plan.ep,
                              plan.microBatchSize,
                              plan.sequenceParallel,
                              plan.vocabParallel,
                              plan.keepTensorParallelResults,
                              plan.sliceRecomputedInputs,
                              plan.offloadActivations,
                              splitsBackward(plan.schedule)};
  bool isLocal = true;
  for (const Kinds &kinds : unlike) {
    int pattern = patternOf(kinds, plan);
    key.push_back(pattern < 0 ? -1 : kinds.group[pattern]);
    isLocal = isLocal && (pattern < 0 || kinds.isLocal[pattern]);
  }
  if (!isLocal || plan.offloadParameters) // of parameters on the host a share comes with each micro-batch
    key.insert(key.end(), {plan.pp, plan.dp, plan.zero, plan.offloadParameters});
  return key;
}

bool MicroBatchTerms::isWhole(const Plan &plan) const {
  return std::ranges::all_of(unlike, [&](const Kinds &kinds) {
    int pattern = patternOf(kinds, plan);
    return pattern >= 0 && kinds.isWhole[pattern];
  });
}

namespace {

// V-shaped schedules are built step by step: a stage runs the first forward of micro-batch i before any stage may have
// micro-batch i + p, so that up to there it does not matter how many come behind it.
std::vector<HeldChunks> momentsOf(const Plan &axes) {
  std::vector<HeldChunks> moments;
  int p = axes.pp, m = static_cast<int>(std::min<int64_t>(axes.microBatches, 3 * p));
  ScheduleTable table = buildSchedule(axes.schedule, p, m);
  for (int stage = 0; stage < p; ++stage) {
    std::vector<Action> &actions = table.stages[stage];
    if (m < axes.microBatches)
      actions.erase(std::ranges::find(actions, Action{ActionKind::Forward, m - p, 0}), actions.end());
    moments.push_back(mostHeld(table, stage));
  }
  return moments;
}

} // namespace

std::vector<HeldStages> leastHeldOf(const Plan &axes) {
  constexpr double likely = 1.2; // what stages of one group hold differs by less
  constexpr int mostStages = 512;
  double m = static_cast<double>(axes.microBatches);
  int p = axes.pp;
  std::vector<HeldChunks> moments;
  if ((axes.schedule == Schedule::VHalf || axes.schedule == Schedule::VMin) && p <= mostStages)
    moments = momentsOf(axes);
  std::vector<double> held;
  for (int stage = 0; stage < p; ++stage)
    switch (axes.schedule) {
    case Schedule::GPipe:
      held.push_back(m);
      break;
    case Schedule::OneFOneB:
      held.push_back(std::min<double>(m, p - stage));
      break;
    case Schedule::ZeroBubbleH1:
    case Schedule::ZeroBubbleV: // of both chunks
      held.push_back(std::min<double>(m, p));
      break;
    case Schedule::Interleaved: // before its first backward; of the last chunk least
      held.push_back(axes.microBatches == p ? p : std::min(p, 2 * (p - stage) - 1));
      break;
    case Schedule::VHalf:
    case Schedule::VMin:
      held.push_back(moments.empty() ? 1 : heldOfEither(moments[stage]));
      break;
    }
  std::ranges::sort(held, std::greater<>());
  std::vector<HeldStages> groups;
  double most = 0;
  for (double here : held) {
    if (groups.empty() || here * likely < most) {
      groups.emplace_back();
      most = here;
    }
    groups.back() = {here, groups.back().stages + 1};
  }
  return groups;
}

LayerTrades::LayerTrades(const Problem &problem, const Plan &plan, const CostTable &table)
    : sum(sumWork(problem, table)) {
  std::vector<double> layers(problem.kinds.size());
  for (const LayerRun &run : problem.layers)
    layers[run.kind] += run.count;
  std::array<double, 3> shares = stateShares(plan);
  for (size_t kind = 0; kind < layers.size(); ++kind)
    if (layers[kind] > 0) {
      const SegmentCost &cost = table.kinds[kind];
      counts.push_back(layers[kind]);
      addKind(cost, problem.pins.recompute);
      state[0].push_back(cost.parameterBytes / shares[0]);
      state[1].push_back(cost.gradientBytes / shares[1]);
      state[2].push_back(cost.optimizerBytes / shares[2]);
    }
  tabulate();
}

void LayerTrades::addKind(const SegmentCost &cost, const std::optional<Recompute> &pinned) {
  std::array<double, 3> each{};
  each.fill(kInfinity);
  for (int kept = 0; kept < 3; ++kept)
    if (!pinned || kept == static_cast<int>(*pinned))
      each[kept] = segmentSeconds(cost, kept).total();
  seconds.push_back(*std::ranges::min_element(each));
  for (int kept = 0; kept < 3; ++kept) {
    repeated[kept].push_back(each[kept] - seconds.back());
    saved[kept].push_back(cost.keepsSavedOnDevice(kept) ? cost.savedBytes[kept] : 0);
  }
}

// Prices between those at which the first layer and the last change their class.
void LayerTrades::tabulate() {
  double least = kInfinity, most = 0;
  for (size_t kind = 0; kind < counts.size(); ++kind)
    for (int kept = 0; kept < 3; ++kept)
      for (int other = 0; other < 3; ++other)
        if (double gain = saved[kept][kind] - saved[other][kind], cost = repeated[other][kind] - repeated[kept][kind];
            gain > 0 && cost > 0 && std::isfinite(cost)) {
          least = std::min(least, cost / gain);
          most = std::max(most, cost / gain);
        }
  for (int i = 1; i < kPrices && least <= most; ++i) {
    prices[i] = least * std::pow(most / least * 1.01, (i - 1.0) / (kPrices - 2));
    for (size_t kind = 0; kind < counts.size(); ++kind) {
      double best = kInfinity;
      for (int kept = 0; kept < 3; ++kept)
        best = std::min(best, repeated[kept][kind] + prices[i] * saved[kept][kind]);
      traded[i] += counts[kind] * best;
    }
  }
}

// What of parameters, gradients or optimizer a rank has; under ZeRO of experts, which have fewer replicas, at least.
std::array<double, 3> LayerTrades::stateShares(const Plan &axes) const {
  double replicas = static_cast<double>(axes.replicas()) * axes.cp;
  return {axes.zero >= 3 ? 1 / replicas : 1, axes.zero >= 2 ? 1 / replicas : 1, axes.zero >= 1 ? 1 / replicas : 1};
}

double LayerTrades::leastSum(double microBatches, const Plan &axes, std::span<const Weights> weights) const {
  std::array<double, 3> shares = stateShares(axes);
  std::vector<double> least(counts.size(), kInfinity);
  for (const Weights &weight : weights) {
    double time = weight.time * microBatches, kept = weight.kept;
    double parameters = axes.offloadParameters ? 0 : weight.state;
    std::array<double, 3> states = {parameters * shares[0], parameters * shares[1],
                                    axes.offloadOptimizer ? 0 : weight.state * shares[2]};
    for (size_t kind = 0; kind < least.size(); ++kind) {
      double trade =
          std::min({time * repeated[0][kind] + kept * saved[0][kind], time * repeated[1][kind] + kept * saved[1][kind],
                    time * repeated[2][kind] + kept * saved[2][kind]});
      double here = time * seconds[kind] + trade + states[0] * state[0][kind] + states[1] * state[1][kind] +
                    states[2] * state[2][kind];
      least[kind] = std::min(least[kind], here);
    }
  }
  double sum = 0;
  for (size_t kind = 0; kind < least.size(); ++kind)
    sum += counts[kind] * least[kind];
  return sum;
}

double LayerTrades::bound(const WorkSum &whole, const Machine &machine, const Plan &axes,
                          std::span<const HeldStages> stages) const {
  double m = static_cast<double>(axes.microBatches), room = machine.memoryBytes - machine.reservedBytes;
  double sent = sentSeconds(whole, axes, chunksOf(axes.schedule, axes.virtualStages));
  double seconds = m * (whole.work + sent) + whole.once;
  // What all layers take on a stage at one price for a byte of one micro-batch.
  auto priced = [&](int i, double held) { return seconds + m * traded[i] + m * prices[i] / held * whole.stateBytes; };
  // The part of all layers that a stage may have by T, were they all alike, and the price that says so.
  auto mostOf = [&](double target, double held) {
    std::pair<double, int> most(target / seconds, 0);
    for (int i = 1; i < kPrices && prices[i] > 0; ++i)
      most = std::min(most, {(target + m * prices[i] * room / held) / priced(i, held), i});
    return most;
  };
  auto isEnough = [&](double target) {
    double parts = 0;
    for (const HeldStages &group : stages)
      parts += group.stages * mostOf(target, group.held).first;
    return parts >= 1;
  };
  double low = seconds / axes.pp, high = 2 * low;
  if (isEnough(low * (1 + 1e-9)))
    return 0;
  for (int i = 0; i < 10 && !isEnough(high); ++i)
    low = high, high *= 2;
  for (int i = 0; i < 20; ++i)
    (isEnough((low + high) / 2) ? high : low) = (low + high) / 2;
  std::vector<Weights> weights;
  double times = 0, rooms = 0, least = kInfinity;
  for (const HeldStages &group : stages) {
    int i = mostOf(high, group.held).second;
    double time = 1 / priced(i, group.held), byte = time * m * prices[i] / group.held;
    if (i > 0 || weights.empty() || weights.back().state > 0)
      weights.push_back({time, byte * group.held, byte});
    times += group.stages * time;
    rooms += group.stages * byte * room;
    least = std::min(least, time);
  }
  double others = seconds - m * sum.layerWork; // spread over stages, too
  return (leastSum(m, axes, weights) + least * std::max(others, 0.0) - rooms) / times * (1 - 1e-9);
}

} // namespace espalier::planner
