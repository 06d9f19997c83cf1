// Enumerates axes, micro-batches and flags; schedules come when a choice is due. A choice of axes is cheap to list and
// dear to sum, so sums are made in parallel, and by the schedules that a choice has only those are counted.
#include "planner/search/space.h"

#include "planner/model/schedule.h"
#include "planner/search/chunk_options.h"
#include "planner/search/merge_layers.h"
#include "planner/search/parallel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

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

constexpr size_t kManyKinds = 32;    // that take longer to sum than to merge
constexpr size_t kPricedAtOnce = 32; // for all threads to have some

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
  while (taken.size() <= place) {
    sumDue();
    if (waiting.empty())
      break;
    Candidate least = waiting.top();
    waiting.pop();
    if (least.schedule == 0)
      for (const Candidate &candidate : spread(least.choice, *works[least.choice]))
        waiting.push(candidate);
    else if (!least.isRefined) {
      least.bound = std::max(least.bound, memoryBound(least));
      least.isRefined = true;
      waiting.push(least);
    } else
      taken.push_back(least);
  }
  return place < taken.size() ? &taken[place] : nullptr;
}

double SearchSpace::leastBytes(const Candidate &candidate) const {
  return evenBytes(*works[candidate.choice], problem.machine, axes(candidate));
}

Plan SearchSpace::axes(const Candidate &candidate) const {
  Plan plan = choices[candidate.choice];
  const Schedules &known = schedules.at({plan.pp, plan.microBatches});
  std::tie(plan.schedule, plan.virtualStages) = known.list[candidate.schedule - 1];
  return plan;
}

// Chunks on a stage of any plan of the space; the executor runs one.
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
          Plan plan;
          plan.tp = tp, plan.pp = pp, plan.cp = cp, plan.ep = ep;
          plan.dp = devices / tp / pp / cp / ep;
          if (!pins.dp || *pins.dp == plan.dp)
            addMicroBatches(plan);
        }
}

void SearchSpace::addMicroBatches(Plan plan) {
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

// ZeRO 2 and 3 are looked at where somebody pins them, or all plans are wanted.
bool SearchSpace::isOffered(int zero) const { return all || problem.pins.zero || zero <= 1; }

// ZeRO over one rank is none: it is not looked at unless pinned, or to have parameters on the host.
bool SearchSpace::isNothingShared(const Plan &plan, int zero) const {
  return !problem.pins.zero && zero > 0 && plan.replicas() * plan.cp == 1;
}

void SearchSpace::addFlags(Plan plan) {
  for (bool sequenceParallel : {false, true})
    for (bool vocabParallel : {true, false})
      for (int zero = 0; zero <= 3; ++zero) {
        const Pins &pins = problem.pins;
        if (vocabParallel != pins.vocabParallel.value_or(true) ||
            (pins.sequenceParallel && *pins.sequenceParallel != sequenceParallel) ||
            (sequenceParallel && plan.tp == 1) || (pins.zero && *pins.zero != zero) ||
            !isOffered(zero) || (isNothingShared(plan, zero) && zero < 3))
          continue;
        plan.sequenceParallel = sequenceParallel;
        plan.vocabParallel = vocabParallel;
        plan.zero = zero;
        // Of the schedule, costs only depend on whether it splits backward, which makes nothing faster: bounds hold.
        plan.schedule = Schedule::OneFOneB;
        if ((all || isExecutable(problem, plan)) && structuralViolations(problem, plan).empty())
          addOffloads(plan);
      }
}

// The ways to offload under a choice, none first.
void SearchSpace::addOffloads(Plan plan) {
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

// Sums the work of choices under the kinds that `costs` are of.
std::vector<std::optional<WorkSum>> SearchSpace::sum(const Problem &kinds, const KindCosts &costs,
                                                     std::span<const uint32_t> which) const {
  std::vector<std::optional<WorkSum>> sums(which.size());
  // So that costs are near each other; ways to offload under one choice stand together already.
  std::vector<std::pair<uint32_t, uint32_t>> runs;
  for (uint32_t i = 0; i < which.size(); ++i)
    if (i > 0 && KindCosts::compare(choices[which[i - 1]], choices[which[i]]) == 0)
      runs.back().second = i + 1;
    else
      runs.emplace_back(i, i + 1);
  std::ranges::sort(runs, [&](const auto &a, const auto &b) {
    std::strong_ordering compared = KindCosts::compare(choices[which[a.first]], choices[which[b.first]]);
    return compared == 0 ? a.first < b.first : compared < 0;
  });
  std::vector<uint32_t> order;
  for (const auto &[begin, end] : runs)
    for (uint32_t i = begin; i < end; ++i)
      order.push_back(i);
  constexpr size_t block = 128;
  forEachParallel((which.size() + block - 1) / block, threads, [&](size_t i) {
    size_t begin = i * block, end = std::min(begin + block, which.size());
    std::vector<Plan> part;
    for (size_t k = begin; k < end; ++k)
      part.push_back(choices[which[order[k]]]);
    auto partSums = sumWorks(kinds, costs, part, [&](int stages) { return mostChunks(stages); });
    for (size_t k = begin; k < end; ++k)
      sums[order[k]] = partSums[k - begin];
  });
  return sums;
}

// Where layers are of many kinds, all choices are summed with layers merged, and those that are due kind by kind.
void SearchSpace::sumChoices() {
  std::vector<uint32_t> all(choices.size());
  std::iota(all.begin(), all.end(), 0);
  if (problem.kinds.size() >= kManyKinds) {
    Problem merged = mergeLayers(problem, threads);
    works = sum(merged, KindCosts(merged), all);
    mergeChoices();
  } else {
    works = sum(problem, KindCosts(problem), all);
  }
  for (uint32_t choice : all)
    if (works[choice]) {
      countPlans(choice);
      if (alike.empty())
        addChoice(choice);
    }
}

// Groups the choices whose micro-batches are the same.
void SearchSpace::mergeChoices() {
  microBatches.emplace(problem);
  alikeOf.resize(choices.size());
  std::map<std::vector<int64_t>, size_t> places;
  for (uint32_t choice = 0; choice < choices.size(); ++choice) {
    if (!works[choice])
      continue;
    auto [place, isNew] = places.try_emplace(microBatches->keyOf(choices[choice]), alike.size());
    if (isNew)
      alike.push_back({std::numeric_limits<double>::infinity(), {}, nullptr});
    Alike &group = alike[place->second];
    group.choices.push_back(choice);
    for (const Candidate &candidate : spread(choice, withoutLayers(*works[choice])))
      group.bound = std::min(group.bound, candidate.bound * (1 - 1e-9));
  }
  std::ranges::sort(alike, {}, [](const Alike &group) { return std::pair(group.bound, group.choices.front()); });
  for (uint32_t i = 0; i < alike.size(); ++i)
    for (uint32_t choice : alike[i].choices)
      alikeOf[choice] = i;
}

void SearchSpace::countPlans(uint32_t choice) {
  planCount = std::min(planCount + schedulesOf(choices[choice]).plans, 1e300);
}

// Puts a choice under the least bound of its schedules: work spread evenly, in as many chunks as any has.
void SearchSpace::addChoice(uint32_t choice) {
  const Plan &plan = choices[choice];
  waiting.push({evenBound(*works[choice], problem.machine, plan, mostChunks(plan.pp)), choice, 0});
}

// Prices the choices of least bound with layers merged, as long as these may come before all that wait.
void SearchSpace::sumDue() {
  while (alikePriced < alike.size() && (waiting.empty() || alike[alikePriced].bound <= waiting.top().bound)) {
    size_t begin = alikePriced, count = std::min(kPricedAtOnce, alike.size() - begin);
    std::vector<Plan> plans; // with the least ZeRO: what is not split by it is not split by others
    for (size_t i = begin; i < begin + count; ++i)
      plans.push_back(
          choices[*std::ranges::min_element(alike[i].choices, {}, [&](uint32_t c) { return choices[c].zero; })]);
    std::vector<CostTable> tables = buildCostTables(microBatches->problem(), plans, threads);
    forEachParallel(count, threads, [&](size_t i) {
      alike[begin + i].trades = std::make_unique<LayerTrades>(microBatches->problem(), plans[i], tables[i]);
    });
    for (; alikePriced < begin + count; ++alikePriced)
      for (uint32_t choice : alike[alikePriced].choices) {
        // What runs once per step and the state are those with layers merged.
        WorkSum &sum = *works[choice], merged = sum;
        sum = alike[alikePriced].trades->work();
        if (!microBatches->isWhole(choices[choice]))
          sum = withoutLayers(sum);
        sum.work = std::max(sum.work, merged.work);
        sum.passing = std::max(sum.passing, merged.passing);
        sum.once = merged.once;
        sum.stateBytes = merged.stateBytes;
        sum.boundarySeconds = merged.boundarySeconds;
        addChoice(choice);
      }
  }
}

double SearchSpace::memoryBound(const Candidate &candidate) {
  Plan plan = axes(candidate);
  auto [held, isNew] = heldStages.try_emplace({plan.schedule, plan.pp, plan.microBatches});
  if (isNew)
    held->second = leastHeldOf(plan);
  return alike[alikeOf[candidate.choice]].trades->bound(*works[candidate.choice], problem.machine, plan, held->second);
}

// Several chunks on a stage run where somebody pins them: of unlike layers on chunks the search proves nothing, and what
// is kept from backward to apart weight gradients is only bounded.
bool SearchSpace::isOffered(Schedule schedule) const {
  bool hasChunks = schedule == Schedule::Interleaved || isVShaped(schedule);
  bool wantsChunks = problem.pins.virtualStages.value_or(1) > 1 || problem.pins.stageLayers;
  return !splitsBackward(schedule) && (!hasChunks || wantsChunks);
}

const SearchSpace::Schedules &SearchSpace::schedulesOf(const Plan &plan) {
  auto [place, inserted] = schedules.try_emplace({plan.pp, plan.microBatches});
  if (!inserted)
    return place->second;
  Plan with = plan;
  for (Schedule schedule : kSchedules) {
    const auto &pin = problem.pins.schedule;
    if (pin ? schedule != *pin : plan.pp == 1 && schedule != Schedule::OneFOneB)
      continue;
    if (!pin && !all && !isOffered(schedule))
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

void SearchSpace::addSchedule(const Plan &plan, Schedules &schedules) const {
  int chunks = plan.pp * chunksOf(plan.schedule, plan.virtualStages), layers = problem.layerCount();
  const Pins &pins = problem.pins;
  bool pinned = pins.stageLayers.has_value();
  int least = leastLayers(problem, plan);
  if (pins.virtualStages.value_or(plan.virtualStages) != plan.virtualStages ||
      (pinned && !maySplit(*pins.stageLayers, plan.pp, chunks)) || (!all && !isExecutable(problem, plan)) ||
      (!pinned && least > layers) || static_cast<double>(plan.microBatches) * chunks > kMostActions ||
      !whyNotSchedulable(plan.schedule, plan.pp, static_cast<int>(plan.microBatches), plan.virtualStages).empty())
    return;
  schedules.list.emplace_back(plan.schedule, plan.virtualStages);
  int parts = isOneKind ? plan.pp : chunks; // like layers are laid on a stage's chunks by rule
  schedules.plans += pinned ? 1 : binomial(layers - least + parts - 1, parts - 1);
}

std::vector<Candidate> SearchSpace::spread(uint32_t choice, const WorkSum &work) {
  Plan plan = choices[choice];
  const Schedules &known = schedulesOf(plan);
  std::vector<Candidate> list;
  for (uint32_t i = 0; i < known.list.size(); ++i) {
    std::tie(plan.schedule, plan.virtualStages) = known.list[i];
    double bound = relaxedBound(work, problem.machine, plan, /*chunksAlike=*/isOneKind && !problem.pins.stageLayers);
    list.push_back({bound, choice, i + 1, /*isRefined=*/alike.empty() || std::isinf(bound)});
  }
  return list;
}

} // namespace espalier::planner
