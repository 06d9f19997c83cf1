#include "planner/search/stages.h"

#include <algorithm>
#include <numeric>

namespace espalier::planner {

bool hasSeveralOptions(const Problem &problem, const Axes &axes) {
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
void StageOptions::countInFlight() {
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

const std::vector<StageOption> &StageOptions::memoized(Memo &memo, int stage, int first, int count, bool onlyFastest) {
  if (!held)
    countInFlight();
  // Ranges of like layers are alike wherever they begin.
  if (count > 0 && runStart[first + count - 1] <= first)
    first = runStart[first];
  memo.resize(plan.pp);
  std::vector<std::vector<std::vector<StageOption>>> &byFirst = memo[likeStage[stage]];
  byFirst.resize(std::max<size_t>(byFirst.size(), first + 1));
  std::vector<std::vector<StageOption>> &byCount = byFirst[first];
  byCount.resize(std::max<size_t>(byCount.size(), count + 1));
  if (byCount[count].empty()) {
    std::vector<LayerRange> chunks;
    for (int chunk = 0; chunk < perStage; ++chunk)
      chunks.push_back({first, layersOfChunk(plan, stage, chunk, count)});
    byCount[count] = choose(stage, chunks, onlyFastest);
  }
  return byCount[count];
}

const std::vector<StageOption> &StageOptions::options(int stage, int first, int count) {
  return memoized(paretoSets, stage, first, count, /*onlyFastest=*/false);
}

const StageOption &StageOptions::fastest(int stage, int first, int count) {
  bool isQuicker = hasSeveralOptions(problem, plan); // else the Pareto set is this one
  return memoized(isQuicker ? fastestOnly : paretoSets, stage, first, count, isQuicker).front();
}

std::vector<StageOption> StageOptions::options(int stage, std::span<const LayerRange> chunks) {
  return choose(stage, chunks, /*onlyFastest=*/false);
}

StageOption StageOptions::fastest(int stage, std::span<const LayerRange> chunks) {
  return choose(stage, chunks, /*onlyFastest=*/true).front();
}

namespace {

Recompute fastestClass(const SegmentCost &cost) {
  int fastest = 0;
  for (int kept : {1, 2})
    if (segmentSeconds(cost, kept).total() < segmentSeconds(cost, fastest).total())
      fastest = kept;
  return static_cast<Recompute>(fastest);
}

} // namespace

// The fastest classes without a limit of memory; the pinned one where the user pins it.
std::vector<RecomputedLayers> StageOptions::unconstrained(const std::vector<LikeLayers> &kinds) const {
  std::vector<RecomputedLayers> recomputed;
  for (const LikeLayers &like : kinds) {
    int layers = static_cast<int>(like.chunks.size());
    const auto &pinned = problem.pins.recompute;
    Recompute kept = pinned ? *pinned : fastestClass(costs->kinds[like.kind]);
    recomputed.push_back({kept == Recompute::Full ? layers : 0, kept == Recompute::Selective ? layers : 0});
  }
  return recomputed;
}

std::vector<StageOption> StageOptions::choose(int stage, std::span<const LayerRange> chunks, bool onlyFastest) {
  std::vector<LikeLayers> kinds;
  // Keeping all is fastest, but where kept values are offloaded keeping less may be faster.
  bool isFree = !problem.pins.recompute, mayKeepLess = isFree && plan.offloadActivations;
  if (mayKeepLess || !isFree)
    kinds = layersByKind(*costs, chunks);
  StageOption first = price(stage, chunks, unconstrained(kinds));
  bool isEmpty = std::ranges::all_of(chunks, [](const LayerRange &chunk) { return chunk.count == 0; });
  if (!isFree || isEmpty || (first.fits && (!mayKeepLess || onlyFastest)))
    return {first};
  if (!mayKeepLess)
    kinds = layersByKind(*costs, chunks);
  KeepChoices found = chooseKept(*costs, kinds, roomOf(stage), onlyFastest || !hasSeveralOptions(problem, plan));
  complete = complete && found.isComplete;
  if (!found.fits)
    return {price(stage, chunks, found.list.front().recomputed)};
  std::vector<StageOption> options(found.list.size(), first); // they differ in what is recomputed alone
  for (size_t i = 0; i < options.size(); ++i) {
    options[i].fits = true;
    options[i].recomputed = std::move(found.list[i].recomputed);
    options[i].seconds = std::move(found.list[i].seconds);
  }
  return options;
}

// Memory of the stage that was priced last, as far as it does not depend on what its layers keep.
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
                                const std::vector<RecomputedLayers> &recomputed) {
  if (!held)
    countInFlight();
  parts.resize(perStage);
  content = stageEnds(plan, stage);
  content.layers.resize(problem.kinds.size());
  std::vector<std::vector<Recompute>> kept = keptLayers(*costs, chunks, recomputed);
  StageOption option;
  option.recomputed = recomputed;
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

StageRanges::StageRanges(const Problem &problem, StageOptions &stageOptions)
    : problem(problem), stageOptions(stageOptions), axes(stageOptions.axes()), perStage(stageOptions.chunksPerStage()) {
  bool vShape = isVShaped(axes.schedule);
  const CostTable &costs = stageOptions.table();
  double forward = 0; // of the edges above
  for (int stage = 0; stage < axes.pp; ++stage) {
    waits.push_back(forward);
    edges.push_back(0);
    for (int chunk = 0; chunk < perStage; ++chunk)
      edges[stage] +=
          planner::edgeSeconds(costs, modelChunk(stage, chunk, axes.pp, vShape), axes.pp, perStage, vShape).total();
    forward += planner::edgeSeconds(costs, stage, axes.pp, perStage, vShape).forward;
  }
  if (const auto &given = problem.pins.stageLayers) {
    totals.assign(axes.pp, 0);
    for (size_t i = 0; i < given->size(); ++i)
      totals[stageOfChunk(static_cast<int>(i), axes.pp, vShape)] += (*given)[i];
  }
  int from = static_cast<int>(problem.pins.recompute.value_or(Recompute::None));
  int to = axes.offloadActivations && !problem.pins.recompute ? 2 : from; // keeping less may be faster
  for (int kind : costs.layerKinds) {
    double leastForward = std::numeric_limits<double>::infinity(), least = leastForward;
    for (int kept = from; kept <= to; ++kept) {
      ChunkSeconds seconds = segmentSeconds(costs.kinds[kind], kept);
      leastForward = std::min(leastForward, seconds.forward);
      least = std::min(least, seconds.total());
    }
    forwards.push_back(forwards.back() + leastForward);
    work.push_back(work.back() + least);
    leastSeconds = std::min(leastSeconds, least);
  }
}

const std::vector<StageOption> &StageRanges::options(int stage, int first, int count) {
  if (!arePinned())
    return stageOptions.options(stage, first, count);
  pinned.resize(axes.pp);
  if (pinned[stage].empty())
    pinned[stage] = stageOptions.options(stage, pinnedRanges(stage));
  return pinned[stage];
}

double StageRanges::stageBound(int stage, int first, int count, double target) {
  double m = static_cast<double>(axes.microBatches), edge = edges[stage];
  double wait = waits[stage] + (perStage == 1 ? forwards[first] : 0);
  double least = arePinned() && perStage > 1 ? count * leastSeconds : work[first + count] - work[first];
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (wait + m * (edge + least) > target * (1 + 1e-9))
    return infinity;
  const StageOption &option =
      arePinned() || areUnlike() ? options(stage, first, count).front() : stageOptions.fastest(stage, first, count);
  if (!option.fits)
    return infinity;
  double seconds = edge;
  for (const ChunkSeconds &chunk : option.seconds)
    seconds += chunk.total();
  return wait + m * seconds + option.stepSeconds;
}

std::vector<LayerRange> StageRanges::pinnedRanges(int stage) const {
  std::vector<LayerRange> ranges;
  for (int chunk = 0; chunk < perStage; ++chunk) {
    auto begin = problem.pins.stageLayers->begin();
    auto here = begin + modelChunk(stage, chunk, axes.pp, isVShaped(axes.schedule));
    ranges.push_back({std::accumulate(begin, here, 0), *here});
  }
  return ranges;
}

LaidStages layStages(StageOptions &options, const std::vector<int> &counts,
                     const std::vector<std::vector<RecomputedLayers>> &recomputed) {
  const Axes &axes = options.axes();
  int perStage = options.chunksPerStage();
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
        options.price(stage, own, recomputed.empty() ? options.fastest(stage, own).recomputed : recomputed[stage]);
    std::vector<std::vector<Recompute>> kept = keptLayers(options.table(), own, option.recomputed);
    for (int i = 0; i < perStage; ++i)
      chunks[i]->recompute = std::move(kept[i]);
    laid.bytes.push_back(option.bytes);
    laid.hostBytes.push_back(option.hostBytes);
  }
  return laid;
}

} // namespace espalier::planner
