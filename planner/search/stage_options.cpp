// A range of layers is priced with nothing repeated; where that does not fit, its kinds are handed to the knapsack.
#include "planner/search/stage_options.h"

#include <algorithm>

namespace espalier::planner {

ChunkSeconds segmentSeconds(const SegmentCost &cost, int recompute) {
  return {cost.forward.total() + cost.forwardTransfer[recompute],
          cost.backward.total() + cost.recompute[recompute].total(),
          cost.weight.total() + cost.weightTransfer[recompute]};
}

ChunkSeconds chunkSeconds(const CostTable &table, const StageContent &content) {
  ChunkSeconds seconds;
  for (size_t kind = 0; kind < content.layers.size(); ++kind)
    for (int recompute = 0; recompute < 3; ++recompute) {
      int count = content.layers[kind][recompute];
      if (count == 0)
        continue;
      ChunkSeconds one = segmentSeconds(table.kinds[kind], recompute);
      seconds.forward += count * one.forward;
      seconds.backward += count * one.backward;
      seconds.weight += count * one.weight;
    }
  return seconds;
}

PhaseSeconds stepPhase(const CostTable &table, const StageContent &content) {
  PhaseSeconds sum;
  std::array<double, kAxes> hideable{};
  double backward = 0, hidden = 0;
  auto add = [&](const SegmentCost &cost, double count) {
    sum.compute += count * cost.step.compute;
    sum.hostTransfer += count * cost.step.hostTransfer;
    backward += count * (cost.backward.total() + cost.weight.total());
    for (int axis = 0; axis < kAxes; ++axis) {
      sum.communication[axis] += count * cost.step.communication[axis];
      hideable[axis] += count * cost.hideableStep[axis];
      hidden += count * cost.hideableStep[axis];
    }
  };
  for (size_t kind = 0; kind < content.layers.size(); ++kind)
    for (int count : content.layers[kind])
      if (count > 0)
        add(table.kinds[kind], count);
  if (content.embed)
    add(table.embed, 1);
  if (content.head)
    add(table.head, 1);
  if (content.embed != content.head)
    sum.communication[static_cast<int>(Axis::Dp)] += table.tiedSeconds;
  double exposed = hidden > 0 ? overlappedSeconds(backward, hidden) - backward : 0;
  for (int axis = 0; axis < kAxes && hidden > 0; ++axis)
    sum.communication[axis] += exposed * hideable[axis] / hidden;
  return sum;
}

namespace {

CostTable withoutKinds(const CostTable &table) {
  CostTable rest;
  rest.embed = table.embed, rest.head = table.head;
  rest.boundarySeconds = table.boundarySeconds, rest.boundaryBytes = table.boundaryBytes;
  rest.inputBytes = table.inputBytes;
  rest.layersReadInputs = table.layersReadInputs;
  rest.microBatches = table.microBatches;
  rest.passesStream = table.passesStream;
  rest.tiedSeconds = table.tiedSeconds;
  return rest;
}

} // namespace

StageOptions::StageOptions(const Problem &problem, const Plan &plan, std::shared_ptr<ScheduleCache> schedules)
    : StageOptions(problem, plan, std::move(schedules),
                   std::make_shared<const CostTable>(buildCostTable(problem, plan))) {}

StageOptions::StageOptions(const Problem &problem, const Plan &plan, std::shared_ptr<ScheduleCache> schedules,
                           std::shared_ptr<const CostTable> costs)
    : problem(problem), plan(plan), shared(std::move(costs)), costs(*shared), schedules(std::move(schedules)) {
  this->plan.stages.clear();
  for (int kind : shared->layerKinds)
    oneKind = oneKind && kind == shared->layerKinds.front();
  if (chunksOf(plan.schedule, plan.virtualStages) == 1 && (!oneKind || problem.pins.recompute)) {
    ranges.emplace(*shared);
    range = withoutKinds(*shared);
    range.kinds.resize(1);
  }
}

std::shared_ptr<const OrderedSchedule> StageOptions::schedule() const {
  return schedules->get(plan.schedule, plan.pp, static_cast<int>(plan.microBatches), plan.virtualStages);
}

std::shared_ptr<const std::vector<HeldChunks>> StageOptions::mostHeld() const {
  return schedules->mostHeld(plan.schedule, plan.pp, static_cast<int>(plan.microBatches), plan.virtualStages);
}

ChunkSeconds edgeSeconds(const CostTable &costs, int chunk, int stages, int chunksPerStage, bool vShape) {
  int last = stages * chunksPerStage - 1, here = stageOfChunk(chunk, stages, chunksPerStage, vShape);
  ChunkSeconds seconds;
  if (chunk < last && stageOfChunk(chunk + 1, stages, chunksPerStage, vShape) != here)
    seconds.forward += costs.boundarySeconds;
  if (chunk > 0 && stageOfChunk(chunk - 1, stages, chunksPerStage, vShape) != here)
    seconds.backward += costs.boundarySeconds;
  bool embed = chunk == 0, head = chunk == last;
  for (const auto &[present, cost] : {std::pair(embed, &costs.embed), std::pair(head, &costs.head)})
    if (present) {
      ChunkSeconds own = segmentSeconds(*cost, 0);
      seconds.forward += own.forward;
      seconds.backward += own.backward;
      seconds.weight += own.weight;
    }
  return seconds;
}

StageContent stageEnds(const Plan &plan, int stage) {
  StageContent content;
  int chunks = chunksOf(plan.schedule, plan.virtualStages);
  content.embed = stage == 0;
  content.head = stage == (isVShaped(plan.schedule) ? 0 : plan.pp - 1);
  content.receives = plan.pp > 1 && (stage > 0 || chunks > 1);
  content.sends = plan.pp > 1 && (stage < plan.pp - 1 || chunks > 1);
  return content;
}

StageContent StageOptions::contentOf(int stage) const {
  StageContent content = stageEnds(plan, stage);
  content.inFlight = inFlight[stage];
  return content;
}

const StageOption &StageOptions::best(int stage, int first, int count) {
  return known(stage, first, count, recomputeBudget);
}

const StageOption &StageOptions::bound(int stage, int first, int count) { return known(stage, first, count, 0); }

const StageOption &StageOptions::known(int stage, int first, int count, int64_t budget) {
  // Stages between the ends that hold equally much are alike, and so are positions of equal layers.
  if (inFlight.empty()) {
    for (int i = 0; i < plan.pp; ++i) {
      auto microBatches = static_cast<int>(plan.microBatches);
      inFlight.push_back(planner::mostHeld(plan.schedule, i, plan.pp, microBatches, 1).front().front());
    }
    placesOf.resize(oneKind ? static_cast<size_t>(plan.pp) : costs.layerKinds.size());
  }
  int stageClass = stage;
  bool inner = stage > 0 && stage < plan.pp - 1;
  if (inner && inFlight[stage] == inFlight[1])
    stageClass = 1;
  std::vector<Places> &stages = placesOf[oneKind ? stageClass : first]; // few have ranges from one layer on
  auto places = std::ranges::find(stages, stageClass, &Places::stageClass);
  if (places == stages.end())
    places = stages.insert(places, {stageClass, {}});
  if (places->byCount.size() <= static_cast<size_t>(count))
    places->byCount.resize(count + 1);
  uint32_t &place = places->byCount[count];
  bool isNew = place == 0;
  if (isNew) {
    entries.emplace_back();
    place = static_cast<uint32_t>(entries.size());
  }
  Known &entry = entries[place - 1];
  if (isNew || (entry.budget < budget && entry.option.fits && !entry.option.isProved()))
    entry = {choose(stage, first, count, budget), budget};
  return entry.option;
}

StageOption StageOptions::choose(int stage, int first, int count, int64_t budget) {
  StageContent content = contentOf(stage);
  if (const auto &pinned = problem.pins.recompute)
    return finish(place(content, first, count, *pinned), content);
  StageOption option = finish(place(content, first, count, Recompute::None), content);
  if (option.fits) // nothing is repeated
    return option;
  RecomputeChoice choice = chooseMixed(stage, first, count, budget);
  if (oneKind) {
    content.layers[costs.layerKinds.front()] = choice.layers.front();
    option = finish(costs, content);
  } else {
    place(content, first, count, Recompute::None);
    SegmentCost &cost = range.kinds[0];
    cost.savedBytes[0] = choice.savedBytes / content.inFlight;
    cost.forwardPeakBytes[0] = choice.peakBytes;
    cost.recompute[0] = {.compute = choice.repeatSeconds};
    option = finish(range, content);
  }
  option.leastBackward = option.seconds.backward - (choice.repeatSeconds - choice.leastRepeatSeconds);
  return option;
}

// Puts the range on the stage, all in one class. Returns the table in which it is priced: layers that are alike are
// counted, others are one segment.
const CostTable &StageOptions::place(StageContent &content, int first, int count, Recompute recompute) {
  int index = static_cast<int>(recompute);
  if (ranges) {
    range.kinds[0] = ranges->of(first, count);
    content.layers.assign(1, {});
    content.layers[0][index] = 1;
    return range;
  }
  content.layers.assign(problem.kinds.size(), {});
  content.layers[costs.layerKinds.front()][index] = count;
  return costs;
}

StageOption StageOptions::finish(const CostTable &table, const StageContent &content) const {
  StageOption option;
  StageMemory memory = stageMemory(problem, table, content);
  option.bytes = memory.total();
  option.hostBytes = memory.host();
  option.fits = option.bytes <= problem.machine.memoryBytes && option.hostBytes <= problem.machine.hostShareBytes();
  option.seconds = chunkSeconds(table, content);
  option.leastBackward = option.seconds.backward;
  option.stepSeconds = stepPhase(table, content).total();
  return option;
}

std::vector<int> StageOptions::kindsIn(int first, int count) const {
  if (oneKind)
    return {costs.layerKinds.front()};
  std::vector<int> kinds(costs.layerKinds.begin() + first, costs.layerKinds.begin() + first + count);
  std::ranges::sort(kinds);
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  return kinds;
}

RecomputeChoice StageOptions::chooseMixed(int stage, int first, int count, int64_t budget) {
  StageContent content = contentOf(stage);
  std::vector<RecomputeItem> items;
  double saved = 0; // with nothing repeated
  for (int kind : kindsIn(first, count)) {
    const SegmentCost &cost = costs.kinds[kind];
    RecomputeItem item;
    item.layers = oneKind ? count : countOf(kind, first, count);
    for (int i = 0; i < 3; ++i) {
      item.savedBytes[i] = cost.savedBytes[i] * content.inFlight;
      item.repeatSeconds[i] = cost.recompute[i].total();
      item.peakBytes[i] = peakBytes(cost, i);
    }
    saved += item.layers * item.savedBytes[0];
    items.push_back(item);
  }
  StageMemory memory = stageMemory(problem, place(content, first, count, Recompute::None), content);
  double ends = std::max(content.embed ? peakBytes(costs.embed, 0) : 0, content.head ? peakBytes(costs.head, 0) : 0);
  double others = memory.total() - memory.workspace - saved;
  // What fits only by rounding is left out.
  return chooseRecompute(items, ends, problem.machine.memoryBytes * (1 - 1e-13) - others, budget);
}

int StageOptions::countOf(int kind, int first, int count) const {
  auto begin = costs.layerKinds.begin() + first;
  return static_cast<int>(std::count(begin, begin + count, kind));
}

std::vector<Recompute> StageOptions::keep(int stage, int first, int count) {
  bool fits = best(stage, first, count).fits;
  StageContent content = contentOf(stage);
  if (const auto &pinned = problem.pins.recompute)
    return std::vector<Recompute>(count, *pinned);
  if (fits && finish(place(content, first, count, Recompute::None), content).fits)
    return std::vector<Recompute>(count, Recompute::None);
  std::vector<std::array<int, 3>> left = chooseMixed(stage, first, count, recomputeBudget).layers;
  std::vector<int> kinds = kindsIn(first, count);
  std::vector<Recompute> list;
  for (int layer = first; layer < first + count; ++layer) {
    auto item = std::ranges::lower_bound(kinds, costs.layerKinds[layer]) - kinds.begin();
    int index = left[item][2] > 0 ? 2 : left[item][1] > 0 ? 1 : 0; // those that repeat most first
    --left[item][index];
    list.push_back(static_cast<Recompute>(index));
  }
  return list;
}

} // namespace espalier::planner
