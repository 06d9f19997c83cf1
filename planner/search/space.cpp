// Enumerates axes, micro-batches and flags, and sums the work of each choice in parallel: choices are cheap to list
// and expensive to sum. Schedules of a choice are enumerated when its bound is due.
#include "planner/search/space.h"

#include "planner/check.h"
#include "planner/model/stage.h"
#include "planner/search/parallel.h"

#include <algorithm>
#include <cmath>

namespace espalier::planner {

namespace {

std::vector<int> divisors(int value, const std::optional<int> &pin) {
  std::vector<int> list;
  for (int i = 1; i <= value; ++i)
    if (value % i == 0 && (!pin || *pin == i))
      list.push_back(i);
  return list;
}

// Returns those of the values that the pin allows.
template <typename T> std::vector<T> allowed(const std::optional<T> &pin, std::initializer_list<T> values) {
  std::vector<T> list;
  for (T value : values)
    if (value == pin.value_or(value))
      list.push_back(value);
  return list;
}

double binomial(int n, int k) {
  double value = 1;
  for (int i = 1; i <= k; ++i)
    value = value * (n - k + i) / i;
  return value;
}

// Bounds the memory of schedule tables before one is built.
constexpr double kMostActions = 4e6;

// Most chunks per stage unless more are pinned. Idle time at the ends of a step falls with their number. With 64
// chunks it is less than 1/64 of the step, so that more chunks save little and cost more sends.
constexpr int kMostFreeChunks = 64;

// If a stage has several chunks, some may be without layers; a single chunk may not.
bool maySplit(const std::vector<int> &pinned, int stages, int chunks) {
  return static_cast<int>(pinned.size()) == chunks && (chunks > stages || std::ranges::count(pinned, 0) == 0);
}

// Whether the ranks of cp do not have equal attention in contiguous order.
bool dependsOnOrder(const ComputeTerm &term) {
  return term.kind == ComputeClass::Attention && term.operations.size() > 1;
}

} // namespace

SearchSpace::SearchSpace(const Problem &problem, const SearchOptions &options)
    : problem(problem), all(options.all), threads(options.threads) {
  for (const LayerRun &run : problem.layers)
    isOneKind = isOneKind && (run.count == 0 || run.kind == problem.layers.front().kind);
  for (const SegmentKind &kind : problem.kinds)
    for (const PatternTerms &pattern : kind.patterns)
      isCausal = isCausal || std::ranges::any_of(pattern.compute, dependsOnOrder);
  RecomputeScope scope = problem.software.recomputeScope;
  bool isFree = scope == RecomputeScope::Layer || (scope == RecomputeScope::Prefix && isOneKind);
  classes = isFree || problem.pins.recompute ? 1 : std::size(kRecomputes);
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
  return planner::leastBytes(*works[candidate.choice], problem.machine, config(candidate));
}

ParallelConfig SearchSpace::config(const Candidate &candidate) const {
  ParallelConfig config = choices[candidate.choice];
  const Schedules &known = schedules.at({config.pp, config.microBatches, config.zero});
  size_t place = candidate.schedule - 1;
  std::tie(config.schedule, config.virtualStages) = known.list[place / classes];
  if (classes > 1)
    assignRecompute(static_cast<Recompute>(place % classes), config);
  return config;
}

// A plan that recomputes in full may do so in some layers of each chunk, if the software can. The number of layers is
// the least that fits, and is chosen with the split.
void SearchSpace::assignRecompute(Recompute recompute, ParallelConfig &config) const {
  bool isBlock = recompute == Recompute::Full && problem.software.recomputeScope == RecomputeScope::Chunk;
  config.fullLayers = isBlock ? 1 : 0;
  config.recompute = isBlock ? std::nullopt : std::optional(recompute);
}

// Returns the most chunks per stage of any plan of the space.
int SearchSpace::mostChunks(int stages) const {
  const Pins &pins = problem.pins;
  // Pinned chunks without layers may outnumber the layers. Otherwise only the first and the last chunk may be without
  // layers.
  int chunks = pins.stageLayers ? static_cast<int>(pins.stageLayers->size()) : problem.layerCount() + 2;
  bool isPinned = pins.stageLayers || pins.virtualStages;
  return std::clamp(chunks / stages, 1, isPinned ? chunks : kMostFreeChunks);
}

void SearchSpace::enumerateAxes() {
  for (int64_t count = std::min(problem.globalBatch, kMostMicroBatches); count >= 1; --count)
    if (problem.globalBatch % count == 0)
      microBatchCounts.push_back(count);
  int devices = problem.machine.devices();
  const Pins &pins = problem.pins;
  // An axis that the software lacks has one rank unless it is pinned.
  auto sizes = [&](Axis axis, int ranks, const std::optional<int> &pin) {
    return divisors(problem.software.lacks[axis] && !pin ? 1 : ranks, pin);
  };
  bool hasExperts = limitsOf(problem).hasExperts();
  ParallelConfig config;
  for (int tp : sizes(Axis::Tp, devices, pins.tp))
    for (int pp : sizes(Axis::Pp, devices / tp, pins.pp))
      for (int cp : sizes(Axis::Cp, devices / tp / pp, pins.cp))
        for (int ep : sizes(Axis::Ep, hasExperts ? devices / tp / pp / cp : 1, pins.ep)) {
          config.tp = tp, config.pp = pp, config.cp = cp, config.ep = ep;
          config.dp = devices / tp / pp / cp / ep;
          if (!pins.dp || *pins.dp == config.dp)
            addMicroBatches(config);
        }
}

void SearchSpace::addMicroBatches(ParallelConfig config) {
  if (problem.globalBatch % config.replicas() != 0 || config.pp > problem.layerCount())
    return;
  if (problem.pins.stageLayers && problem.pins.stageLayers->size() % static_cast<size_t>(config.pp) != 0)
    return;
  int64_t perReplica = problem.globalBatch / config.replicas();
  for (int64_t microBatches : microBatchCounts) {
    if (perReplica % microBatches != 0)
      continue;
    int64_t unit = problem.globalBatch / microBatches; // samples of one micro-batch over all replicas
    if (std::ranges::any_of(problem.smallerBatches, [&](int64_t batch) { return batch % unit != 0; }))
      continue;
    config.microBatches = microBatches;
    config.microBatchSize = perReplica / microBatches;
    const Pins &pins = problem.pins;
    if ((!pins.microBatchSize || *pins.microBatchSize == config.microBatchSize) &&
        (!pins.microBatches || *pins.microBatches == microBatches))
      addFlags(config);
  }
}

// ZeRO over one rank shards nothing. It is skipped unless pinned, or needed for parameters in host memory.
bool SearchSpace::isNothingShared(const ParallelConfig &config, int zero) const {
  return !problem.pins.zero && zero > 0 && config.replicas() * config.cp == 1;
}

// Returns the sizes of ZeRO's shard groups; 0 is all of dp. If both the stage and the group are free, ZeRO 3 without a
// pipeline also gets groups of one host, whose gathers stay inside the host.
std::vector<int> SearchSpace::shardGroups(const ParallelConfig &config) const {
  int group = problem.pins.zeroGroup.value_or(0);
  if (group != 0 && (config.zero == 0 || config.dp % group != 0))
    return {};
  int ofHost = problem.machine.devicesPerHost / (config.tp * config.ep * config.cp);
  bool isFree = !problem.pins.zeroGroup && !problem.pins.zero && config.zero == 3 && config.pp == 1;
  if (isFree && ofHost > 1 && ofHost < config.dp && config.dp % ofHost == 0)
    return {0, ofHost};
  return {group};
}

// Returns whether sequences are in zigzag order. Contiguous order is first, so that it wins if both are equally fast.
// Several samples are rearranged in either order: zigzag order is then first, and never worse.
std::vector<bool> SearchSpace::contextOrders(const ParallelConfig &config) const {
  ContextOrders orders = problem.software.contextOrders;
  if (problem.pins.zigzag || config.cp == 1 || !isCausal)
    return {problem.pins.zigzag.value_or(false)};
  if (orders == ContextOrders::Both)
    return config.microBatchSize > 1 ? std::vector{true, false} : std::vector{false, true};
  return {orders == ContextOrders::Zigzag};
}

void SearchSpace::addFlags(ParallelConfig config) {
  const Pins &pins = problem.pins;
  config.vocabParallel = pins.vocabParallel.value_or(true);
  // Costs depend on the schedule only by whether it splits backward. Splitting makes nothing faster, so that bounds
  // hold.
  config.schedule = Schedule::OneFOneB;
  config.recompute = pins.recompute;
  const Software &software = problem.software;
  auto hasStage = [&](int zero) {
    return software.zeroStages.empty() || std::ranges::find(software.zeroStages, zero) != software.zeroStages.end();
  };
  bool needsSequence = software.splitsSequenceOfExperts && config.tp > 1 && limitsOf(problem).hasExperts();
  for (bool sequenceParallel : allowed(pins.sequenceParallel, {false, true}))
    for (int zero : allowed(pins.zero, {0, 1, 2, 3})) {
      if ((!pins.zero && !hasStage(zero)) || (!pins.sequenceParallel && needsSequence && !sequenceParallel))
        continue;
      if ((sequenceParallel && config.tp == 1) || (isNothingShared(config, zero) && zero < 3))
        continue;
      config.sequenceParallel = sequenceParallel;
      config.zero = zero;
      for (int group : shardGroups(config)) {
        config.zeroGroup = group;
        addPlaces(config);
      }
    }
}

// Adds the places of experts and the orders of sequences. Other places of experts than the usual ones, each split over
// tp and with replicas on context ranks, need software that has them.
void SearchSpace::addPlaces(ParallelConfig config) {
  const Pins &pins = problem.pins;
  const Software &software = problem.software;
  bool hasExperts = limitsOf(problem).hasExperts();
  auto places = [&](const std::optional<bool> &pin, bool usual, bool hasOther) {
    return pin || !hasExperts || !hasOther ? std::vector{pin.value_or(usual)} : std::vector{usual, !usual};
  };
  for (bool splits : places(pins.splitsExperts, true, software.hasWholeExperts && config.tp > 1))
    for (bool over : places(pins.expertsOverContext, false, software.hasExpertsOverContext && config.cp > 1)) {
      config.splitsExperts = splits;
      config.expertsOverContext = over;
      for (bool zigzag : contextOrders(config)) {
        config.zigzag = zigzag;
        if ((!all && !problem.capability.runs(config)) || !structuralViolations(problem, {config, {}}).empty())
          continue;
        addOffloads(config);
        if (config.microBatchSize > 1) // the other order moves as many bytes, and has more attention on one rank
          break;
      }
    }
}

// Adds the ways to offload, without offloading first. Parameters are offloaded under ZeRO 3 only, with the optimizer.
void SearchSpace::addOffloads(ParallelConfig config) {
  const Pins &pins = problem.pins;
  bool mayOffload = all && problem.machine.canOffload();
  for (bool parameters : allowed(pins.offloadParameters, {false, true}))
    for (bool optimizer : allowed(pins.offloadOptimizer, {false, true}))
      for (bool activations : allowed(pins.offloadActivations, {false, true})) {
        config.offloadOptimizer = optimizer;
        config.offloadActivations = activations;
        config.offloadParameters = parameters;
        bool isSound = !parameters || (optimizer && config.zero == 3);
        if (isSound && (mayOffload || !config.offloads()) && (parameters || !isNothingShared(config, config.zero)))
          choices.push_back(config);
      }
}

void SearchSpace::sumChoices() {
  works.resize(choices.size());
  constexpr size_t block = 128;
  forEachParallel((choices.size() + block - 1) / block, threads, [&](size_t i) {
    std::span<const ParallelConfig> part =
        std::span(choices).subspan(i * block, std::min(block, choices.size() - i * block));
    auto sums = sumWorks(problem, part, [&](int stages) { return mostChunks(stages); });
    std::ranges::move(sums, works.begin() + static_cast<std::ptrdiff_t>(i * block));
  });
  for (uint32_t choice = 0; choice < choices.size(); ++choice)
    if (works[choice]) {
      const ParallelConfig &config = choices[choice];
      planCount = std::min(planCount + schedulesOf(config).plans, 1e300);
      // A bound over all schedules of the choice, with the most chunks of any of them.
      double bound = workBound(*works[choice], problem.machine, config, mostChunks(config.pp));
      tooLargeCount += std::isinf(bound);
      queue.push({bound, choice, 0});
    }
}

const SearchSpace::Schedules &SearchSpace::schedulesOf(const ParallelConfig &config) {
  auto [place, inserted] = schedules.try_emplace({config.pp, config.microBatches, config.zero});
  if (!inserted)
    return place->second;
  ParallelConfig with = config;
  for (Schedule schedule : kSchedules) {
    const auto &pin = problem.pins.schedule;
    if (pin ? schedule != *pin : config.pp == 1 && schedule != Schedule::OneFOneB)
      continue;
    const std::vector<Schedule> &had = problem.software.schedules;
    if (!pin && config.pp > 1 && !had.empty() && std::ranges::find(had, schedule) == had.end())
      continue;
    int most = schedule == Schedule::Interleaved ? mostChunks(config.pp) : 1;
    for (int virtualStages = schedule == Schedule::Interleaved ? 2 : 1; virtualStages <= most; ++virtualStages) {
      with.schedule = schedule;
      with.virtualStages = isVShaped(schedule) ? 2 : virtualStages;
      addSchedule(with, place->second);
    }
  }
  return place->second;
}

void SearchSpace::addSchedule(const ParallelConfig &config, Schedules &schedules) const {
  int chunks = config.pp * chunksOf(config.schedule, config.virtualStages), layers = problem.layerCount();
  const Pins &pins = problem.pins;
  bool pinned = pins.stageLayers.has_value();
  int least = leastLayers(problem, config);
  const Software &software = problem.software;
  // Software with a list of schedules fills its pipeline: MindFormers refuses fewer micro-batches than stages.
  bool isUnfilled = !software.schedules.empty() && !pins.microBatches && config.microBatches < config.pp;
  if ((software.hasEvenStages && !pinned && layers % chunks != 0) || isUnfilled)
    return;
  auto isUnschedulable = [&](int64_t batch) {
    int64_t microBatches = batch * config.microBatches / problem.globalBatch;
    return !whyNotSchedulable(config.schedule, config.pp, static_cast<int>(microBatches), config.virtualStages).empty();
  };
  if (pins.virtualStages.value_or(config.virtualStages) != config.virtualStages ||
      (pinned && !maySplit(*pins.stageLayers, config.pp, chunks)) || (!all && !problem.capability.runs(config)) ||
      (!pinned && least > layers) || static_cast<double>(config.microBatches) * chunks > kMostActions ||
      isUnschedulable(problem.globalBatch) || std::ranges::any_of(problem.smallerBatches, isUnschedulable))
    return;
  schedules.list.emplace_back(config.schedule, config.virtualStages);
  int parts = isOneKind ? config.pp : chunks; // a rule places equal layers on the chunks of a stage
  schedules.plans += pinned ? 1 : binomial(layers - least + parts - 1, parts - 1);
}

std::vector<Candidate> SearchSpace::expand(uint32_t choice, const WorkSum &work) {
  ParallelConfig config = choices[choice];
  const Schedules &known = schedulesOf(config);
  std::vector<Candidate> list;
  std::vector<WorkSum> works = {work};
  if (classes > 1) {
    CostTable table = buildCostTable(problem, config);
    works.clear();
    for (Recompute recompute : kRecomputes) {
      assignRecompute(recompute, config);
      works.push_back(sumWork(problem, table, config.recompute));
    }
  }
  for (uint32_t i = 0; i < known.list.size() * classes; ++i) {
    std::tie(config.schedule, config.virtualStages) = known.list[i / classes];
    double bound = relaxedBound(works[i % classes], problem.machine, config,
                                /*chunksAlike=*/isOneKind && !problem.pins.stageLayers);
    list.push_back({bound, choice, i + 1});
  }
  return list;
}

} // namespace espalier::planner
