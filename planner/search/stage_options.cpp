#include "planner/search/stage_options.h"

#include <algorithm>
#include <numeric>

namespace espalier::planner {

bool hasSeveralChoices(const Problem &problem, const Axes &axes) {
  return chunksOf(axes.schedule, axes.virtualStages) > 1 || (axes.offloadActivations && !problem.pins.recompute);
}

StageOptions::StageOptions(const Problem &problem, const Axes &axes, std::shared_ptr<ScheduleCache> schedules,
                           std::shared_ptr<const CostTable> given)
    : problem(problem), plan(axes), schedules(std::move(schedules)),
      costs(given ? std::move(given) : std::make_shared<const CostTable>(buildCostTable(problem, axes))),
      perStage(chunksOf(axes.schedule, axes.virtualStages)) {
  const std::vector<int> &kinds = costs->layerKinds;
  for (int layer = 0; layer < static_cast<int>(kinds.size()); ++layer)
    runStart.push_back(layer > 0 && kinds[layer] == kinds[layer - 1] ? runStart.back() : layer);
  isOneKind = kinds.empty() || runStart.back() == 0;
}

std::shared_ptr<const OrderedSchedule> StageOptions::schedule() const {
  return schedules->get(plan.schedule, plan.pp, static_cast<int>(plan.microBatches), plan.virtualStages);
}

// A V-shaped schedule is a table for all stages, which is not built before the first stage is asked for.
void StageOptions::countHeld() {
  held = schedules->mostHeld(plan.schedule, plan.pp, static_cast<int>(plan.microBatches), plan.virtualStages);
  if (problem.streamBuffers.ofEachChunk) {
    auto apart = std::make_shared<std::vector<HeldChunks>>();
    for (const HeldChunks &moments : *held)
      apart->push_back(heldApart(moments));
    held = std::move(apart);
  }
  for (int stage = 0; stage < plan.pp; ++stage) {
    int like = stage;
    if (stage < plan.pp - 1) // between the ends
      for (int other = 1; other < stage && like == stage; ++other)
        like = likeStage[other] == other && (*held)[other] == (*held)[stage] ? other : stage;
    likeStage.push_back(like);
    int most = 0;
    for (const std::vector<int> &moment : (*held)[stage])
      most = std::max(most, std::accumulate(moment.begin(), moment.end(), 0));
    mostInFlight.push_back(std::max(most, 1));
  }
}

const std::vector<StageOption> &StageOptions::remembered(Table &table, int stage, int first, int count, bool isOne) {
  if (!held)
    countHeld();
  // Ranges of like layers are alike wherever they begin.
  if (count > 0 && runStart[first + count - 1] <= first)
    first = runStart[first];
  table.resize(plan.pp);
  std::vector<std::vector<std::vector<StageOption>>> &byFirst = table[likeStage[stage]];
  byFirst.resize(std::max<size_t>(byFirst.size(), first + 1));
  std::vector<std::vector<StageOption>> &byCount = byFirst[first];
  byCount.resize(std::max<size_t>(byCount.size(), count + 1));
  if (byCount[count].empty()) {
    std::vector<LayerRange> chunks;
    for (int chunk = 0; chunk < perStage; ++chunk)
      chunks.push_back({first, layersOfChunk(plan, stage, chunk, count)});
    byCount[count] = choose(stage, chunks, isOne);
  }
  return byCount[count];
}

const std::vector<StageOption> &StageOptions::choices(int stage, int first, int count) {
  return remembered(all, stage, first, count, /*isOne=*/false);
}

const StageOption &StageOptions::best(int stage, int first, int count) {
  bool isOne = hasSeveralChoices(problem, plan); // else the only one
  return remembered(isOne ? this->first : all, stage, first, count, isOne).front();
}

std::vector<StageOption> StageOptions::choices(int stage, std::span<const LayerRange> chunks) {
  return choose(stage, chunks, /*isOne=*/false);
}

StageOption StageOptions::best(int stage, std::span<const LayerRange> chunks) {
  return choose(stage, chunks, /*isOne=*/true).front();
}

namespace {

// The class in which a layer is fastest.
Recompute fastestClass(const SegmentCost &cost) {
  int fastest = 0;
  for (int kept : {1, 2})
    if (segmentSeconds(cost, kept).total() < segmentSeconds(cost, fastest).total())
      fastest = kept;
  return static_cast<Recompute>(fastest);
}

} // namespace

// The choice that is fastest whatever fits; what all layers keep where the user says so.
std::vector<RepeatedLayers> StageOptions::fastest(const std::vector<LikeLayers> &kinds) const {
  std::vector<RepeatedLayers> repeated;
  for (const LikeLayers &like : kinds) {
    int layers = static_cast<int>(like.chunks.size());
    const auto &pinned = problem.pins.recompute;
    Recompute kept = pinned ? *pinned : fastestClass(costs->kinds[like.kind]);
    repeated.push_back({kept == Recompute::Full ? layers : 0, kept == Recompute::Selective ? layers : 0});
  }
  return repeated;
}

std::vector<StageOption> StageOptions::choose(int stage, std::span<const LayerRange> chunks, bool isOne) {
  std::vector<LikeLayers> kinds;
  bool isFree = !problem.pins.recompute, mayKeepLess = isFree && plan.offloadActivations;
  if (mayKeepLess || !isFree)
    kinds = layersByKind(*costs, chunks);
  StageOption first = price(stage, chunks, fastest(kinds));
  bool isEmpty = std::ranges::all_of(chunks, [](const LayerRange &chunk) { return chunk.count == 0; });
  if (!isFree || isEmpty || (first.fits && (!mayKeepLess || isOne)))
    return {first};
  if (!mayKeepLess)
    kinds = layersByKind(*costs, chunks);
  RepeatChoices found = chooseRepeats(*costs, kinds, roomOf(stage), isOne || !hasSeveralChoices(problem, plan));
  complete = complete && found.isComplete;
  if (!found.fits)
    return {price(stage, chunks, found.list.front().repeated)};
  std::vector<StageOption> options(found.list.size(), first); // they differ in what is repeated
  for (size_t i = 0; i < options.size(); ++i) {
    options[i].fits = true;
    options[i].repeated = std::move(found.list[i].repeated);
    options[i].seconds = std::move(found.list[i].seconds);
  }
  return options;
}

// Of the stage that was priced.
StageRoom StageOptions::roomOf(int stage) const {
  StageRoom room;
  room.held = (*held)[stage];
  for (const SavedBytes &chunk : saved)
    room.ends.push_back(chunk.ends);
  for (size_t kind = 0; kind < content.layers.size(); ++kind)
    for (int count : content.layers[kind])
      room.stepBytes += count * costs->kinds[kind].stepBytes;
  for (const auto &[present, cost] : {std::pair(content.embed, &costs->embed), std::pair(content.head, &costs->head)})
    if (present) {
      room.endsPeakBytes = std::max(room.endsPeakBytes, peakBytes(*cost, 0));
      room.stepBytes += cost->stepBytes;
    }
  StageContent nothingHeld = content;
  nothingHeld.held = SavedBytes{};
  StageMemory memory = stageMemory(problem, *costs, nothingHeld);
  room.fixedBytes = memory.total() - memory.workspace;
  room.fixedHostBytes = memory.host();
  room.bytes = problem.machine.memoryBytes;
  room.hostBytes = problem.machine.hostShareBytes();
  room.areLayersElsewhere = plan.offloadActivations;
  return room;
}

StageOption StageOptions::price(int stage, std::span<const LayerRange> chunks,
                                const std::vector<RepeatedLayers> &repeated) {
  if (!held)
    countHeld();
  parts.resize(perStage);
  content = stageEnds(plan, stage);
  content.layers.resize(problem.kinds.size());
  std::vector<std::vector<Recompute>> kept = keptLayers(*costs, chunks, repeated);
  StageOption option;
  option.repeated = repeated;
  saved.clear();
  for (int chunk = 0; chunk < perStage; ++chunk) {
    StageContent &part = parts[chunk];
    part.layers.assign(problem.kinds.size(), {});
    for (int place = 0; place < chunks[chunk].count; ++place) {
      int kind = costs->layerKinds[chunks[chunk].first + place], index = static_cast<int>(kept[chunk][place]);
      ++part.layers[kind][index];
      ++content.layers[kind][index];
    }
    int position = modelChunk(stage, chunk, plan.pp, isVShaped(plan.schedule));
    part.embed = position == 0;
    part.head = position == plan.pp * perStage - 1;
    saved.push_back(savedBytes(*costs, part));
    option.seconds.push_back(chunkSeconds(*costs, part));
  }
  content.inFlight = mostInFlight[stage];
  content.held = heldBytes((*held)[stage], saved, plan.offloadActivations);
  content.chunks = chunkEnds(problem, plan, stage, (*held)[stage], [&](int position) {
    int chunk = 0;
    while (modelChunk(stage, chunk, plan.pp, isVShaped(plan.schedule)) != position)
      ++chunk;
    return costs->passesStream && !kept[chunk].empty() && kept[chunk].front() == Recompute::Full;
  });
  StageMemory memory = stageMemory(problem, *costs, content);
  option.bytes = memory.total();
  option.hostBytes = memory.host();
  option.fits = option.bytes <= problem.machine.memoryBytes && option.hostBytes <= problem.machine.hostShareBytes();
  option.stepSeconds = stepPhase(*costs, content).total();
  return option;
}

LaidStages layStages(StageOptions &options, const std::vector<int> &counts,
                     const std::vector<std::vector<RepeatedLayers>> &repeated) {
  const Axes &axes = options.axes();
  int perStage = chunksOf(axes.schedule, axes.virtualStages);
  LaidStages laid;
  for (size_t chunk = 0, first = 0; chunk < counts.size(); first += counts[chunk++])
    laid.stages.push_back({static_cast<int>(first), counts[chunk], {}});
  for (int stage = 0; stage < axes.pp; ++stage) {
    std::vector<LayerRange> own;
    std::vector<StagePlan *> chunks;
    for (int i = 0; i < perStage; ++i) {
      chunks.push_back(&laid.stages[modelChunk(stage, i, axes.pp, isVShaped(axes.schedule))]);
      own.push_back({chunks.back()->firstLayer, chunks.back()->layers});
    }
    StageOption option =
        options.price(stage, own, repeated.empty() ? options.best(stage, own).repeated : repeated[stage]);
    std::vector<std::vector<Recompute>> kept = keptLayers(options.table(), own, option.repeated);
    for (int i = 0; i < perStage; ++i)
      chunks[i]->recompute = std::move(kept[i]);
    laid.bytes.push_back(option.bytes);
    laid.hostBytes.push_back(option.hostBytes);
  }
  return laid;
}

} // namespace espalier::planner
