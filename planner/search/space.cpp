// Enumerates axes, micro-batches and flags, and sums the work of each choice in parallel: a choice is cheap to list and
// dear to sum. Schedules of a choice are enumerated when its bound is due.
#include "planner/search/space.h"

#include "planner/model/stage.h"
#include "planner/search/parallel.h"

#include <algorithm>

namespace espalier::planner {

namespace {

std::vector<int> divisors(int value, const std::optional<int> &pin) {
  std::vector<int> list;
  for (int i = 1; i <= value; ++i)
    if (value % i == 0 && (!pin || *pin == i))
      list.push_back(i);
  return list;
}

double binomial(int n, int k) {
  double value = 1;
  for (int i = 1; i <= k; ++i)
    value = value * (n - k + i) / i;
  return value;
}

// Memory for actions of a table is bounded before one is built.
constexpr double kMostActions = 4e6;
constexpr int64_t kMostMicroBatches = 1 << 16;

// Only one of several chunks of a stage may be without layers.
bool maySplit(const std::vector<int> &pinned, int stages, int chunks) {
  return static_cast<int>(pinned.size()) == chunks && (chunks > stages || std::ranges::count(pinned, 0) == 0);
}

} // namespace

SearchSpace::SearchSpace(const Problem &problem, const SearchOptions &options)
    : problem(problem), all(options.all), threads(options.threads) {
  for (const LayerRun &run : problem.layers)
    isOneKind = isOneKind && (run.count == 0 || run.kind == problem.layers.front().kind);
  enumerateAxes();
  sumChoices();
}

const Candidate *SearchSpace::at(size_t place) {
  while (ordered.size() <= place) {
    if (queue.empty())
      break;
    Candidate least = queue.top();
    queue.pop();
    if (least.schedule == 0)
      for (const Candidate &candidate : expand(least.choice, *works[least.choice]))
        queue.push(candidate);
    else
      ordered.push_back(least);
  }
  return place < ordered.size() ? &ordered[place] : nullptr;
}

double SearchSpace::leastBytes(const Candidate &candidate) const {
  return planner::leastBytes(*works[candidate.choice], problem.machine, axes(candidate));
}

Axes SearchSpace::axes(const Candidate &candidate) const {
  Axes plan = choices[candidate.choice];
  const Schedules &known = schedules.at({plan.pp, plan.microBatches, plan.zero});
  std::tie(plan.schedule, plan.virtualStages) = known.list[candidate.schedule - 1];
  return plan;
}

// Chunks on a stage of any plan of the space, at most.
int SearchSpace::mostChunks(int stages) const {
  const auto &pinned = problem.pins.stageLayers; // chunks without layers make them more than the layers
  int chunks = pinned ? static_cast<int>(pinned->size()) : problem.layerCount() + 2; // the ends may hold no layer
  return std::max(1, chunks / stages);
}

void SearchSpace::enumerateAxes() {
  for (int64_t count = std::min(problem.globalBatch, kMostMicroBatches); count >= 1; --count)
    if (problem.globalBatch % count == 0)
      microBatchCounts.push_back(count);
  int devices = problem.machine.devices();
  const Pins &pins = problem.pins;
  bool hasExperts = std::ranges::any_of(problem.limits, [](const Divisibility &d) { return d.axis == Axis::Ep; });
  for (int tp : divisors(devices, pins.tp))
    for (int pp : divisors(devices / tp, pins.pp))
      for (int cp : divisors(devices / tp / pp, pins.cp))
        for (int ep : divisors(hasExperts ? devices / tp / pp / cp : 1, pins.ep)) {
          Axes plan;
          plan.tp = tp, plan.pp = pp, plan.cp = cp, plan.ep = ep;
          plan.dp = devices / tp / pp / cp / ep;
          if (!pins.dp || *pins.dp == plan.dp)
            addMicroBatches(plan);
        }
}

void SearchSpace::addMicroBatches(Axes plan) {
  if (problem.globalBatch % plan.replicas() != 0 || plan.pp > problem.layerCount())
    return;
  if (problem.pins.stageLayers && problem.pins.stageLayers->size() % static_cast<size_t>(plan.pp) != 0)
    return;
  int64_t perReplica = problem.globalBatch / plan.replicas();
  for (int64_t microBatches : microBatchCounts) {
    if (perReplica % microBatches != 0)
      continue;
    plan.microBatches = microBatches;
    plan.microBatchSize = perReplica / microBatches;
    const Pins &pins = problem.pins;
    if ((!pins.microBatchSize || *pins.microBatchSize == plan.microBatchSize) &&
        (!pins.microBatches || *pins.microBatches == microBatches))
      addFlags(plan);
  }
}

// ZeRO over one rank is none: it is not looked at unless pinned, or to have parameters on the host.
bool SearchSpace::isNothingShared(const Axes &plan, int zero) const {
  return !problem.pins.zero && zero > 0 && plan.replicas() * plan.cp == 1;
}

void SearchSpace::addFlags(Axes plan) {
  for (bool sequenceParallel : {false, true})
    for (bool vocabParallel : {true, false})
      for (int zero = 0; zero <= 3; ++zero) {
        const Pins &pins = problem.pins;
        if (vocabParallel != pins.vocabParallel.value_or(true) ||
            (pins.sequenceParallel && *pins.sequenceParallel != sequenceParallel) ||
            (sequenceParallel && plan.tp == 1) || (pins.zero && *pins.zero != zero) ||
            (isNothingShared(plan, zero) && zero < 3))
          continue;
        plan.sequenceParallel = sequenceParallel;
        plan.vocabParallel = vocabParallel;
        plan.zero = zero;
        // Of the schedule, costs only depend on whether it splits backward, which makes nothing faster: bounds hold.
        plan.schedule = Schedule::OneFOneB;
        if ((all || problem.capability.runs(plan)) && structuralViolations(problem, {plan, {}}).empty())
          addOffloads(plan);
      }
}

// The ways to offload under a choice, none first.
void SearchSpace::addOffloads(Axes plan) {
  const Pins &pins = problem.pins;
  bool mayOffload = all && problem.machine.canOffload();
  for (bool parameters : {false, true})
    for (bool optimizer : {false, true})
      for (bool activations : {false, true}) {
        if (((optimizer || activations) && !mayOffload) || (parameters && (plan.zero != 3 || !optimizer)) ||
            (!parameters && isNothingShared(plan, plan.zero)) ||
            pins.offloadOptimizer.value_or(optimizer) != optimizer ||
            pins.offloadActivations.value_or(activations) != activations ||
            pins.offloadParameters.value_or(parameters) != parameters)
          continue;
        plan.offloadOptimizer = optimizer;
        plan.offloadActivations = activations;
        plan.offloadParameters = parameters;
        choices.push_back(plan);
      }
}

void SearchSpace::sumChoices() {
  works.resize(choices.size());
  constexpr size_t block = 128;
  forEachParallel((choices.size() + block - 1) / block, threads, [&](size_t i) {
    std::span<const Axes> part = std::span(choices).subspan(i * block, std::min(block, choices.size() - i * block));
    auto sums = sumWorks(problem, part, [&](int stages) { return mostChunks(stages); });
    std::ranges::move(sums, works.begin() + static_cast<std::ptrdiff_t>(i * block));
  });
  for (uint32_t choice = 0; choice < choices.size(); ++choice)
    if (works[choice]) {
      const Axes &plan = choices[choice];
      planCount = std::min(planCount + schedulesOf(plan).plans, 1e300);
      // Under a bound of all its schedules, with as many chunks as any has.
      queue.push({workBound(*works[choice], problem.machine, plan, mostChunks(plan.pp)), choice, 0});
    }
}

const SearchSpace::Schedules &SearchSpace::schedulesOf(const Axes &plan) {
  auto [place, inserted] = schedules.try_emplace({plan.pp, plan.microBatches, plan.zero});
  if (!inserted)
    return place->second;
  Axes with = plan;
  for (Schedule schedule : kSchedules) {
    const auto &pin = problem.pins.schedule;
    if (pin ? schedule != *pin : plan.pp == 1 && schedule != Schedule::OneFOneB)
      continue;
    int most = schedule == Schedule::Interleaved ? mostChunks(plan.pp) : 1;
    for (int virtualStages = schedule == Schedule::Interleaved ? 2 : 1; virtualStages <= most; ++virtualStages) {
      with.schedule = schedule;
      with.virtualStages = isVShaped(schedule) ? 2 : virtualStages;
      addSchedule(with, place->second);
    }
  }
  return place->second;
}

void SearchSpace::addSchedule(const Axes &plan, Schedules &schedules) const {
  int chunks = plan.pp * chunksOf(plan.schedule, plan.virtualStages), layers = problem.layerCount();
  const Pins &pins = problem.pins;
  bool pinned = pins.stageLayers.has_value();
  int least = leastLayers(problem, plan);
  if (pins.virtualStages.value_or(plan.virtualStages) != plan.virtualStages ||
      (pinned && !maySplit(*pins.stageLayers, plan.pp, chunks)) || (!all && !problem.capability.runs(plan)) ||
      (!pinned && least > layers) || static_cast<double>(plan.microBatches) * chunks > kMostActions ||
      !whyNotSchedulable(plan.schedule, plan.pp, static_cast<int>(plan.microBatches), plan.virtualStages).empty())
    return;
  schedules.list.emplace_back(plan.schedule, plan.virtualStages);
  int parts = isOneKind ? plan.pp : chunks; // like layers are laid on a stage's chunks by rule
  schedules.plans += pinned ? 1 : binomial(layers - least + parts - 1, parts - 1);
}

std::vector<Candidate> SearchSpace::expand(uint32_t choice, const WorkSum &work) {
  Axes plan = choices[choice];
  const Schedules &known = schedulesOf(plan);
  std::vector<Candidate> list;
  for (uint32_t i = 0; i < known.list.size(); ++i) {
    std::tie(plan.schedule, plan.virtualStages) = known.list[i];
    double bound = relaxedBound(work, problem.machine, plan, /*chunksAlike=*/isOneKind && !problem.pins.stageLayers);
    list.push_back({bound, choice, i + 1});
  }
  return list;
}

} // namespace espalier::planner
