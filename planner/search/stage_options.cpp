#include "planner/search/stage_options.h"

#include <algorithm>

namespace espalier::planner {

bool hasSeveralOptions(const ParallelConfig &config) {
  return chunksOf(config.schedule, config.virtualStages) > 1 ||
         (config.offloadActivations && config.choosesRecompute());
}

StageOptions::StageOptions(const Problem &problem, const ParallelConfig &config,
                           std::shared_ptr<ScheduleCache> schedules, std::shared_ptr<const CostTable> given)
    : problem(problem), parallel(config), schedules(std::move(schedules)),
      costs(given ? std::move(given) : std::make_shared<const CostTable>(buildCostTable(problem, config))),
      perStage(chunksOf(config.schedule, config.virtualStages)) {
  if (parallel.choosesRecompute())
    parallel.recompute = problem.pins.recompute;
  const std::vector<int> &kinds = costs->layerKinds;
  for (int layer = 0; layer < static_cast<int>(kinds.size()); ++layer)
    runStart.push_back(layer > 0 && kinds[layer] == kinds[layer - 1] ? runStart.back() : layer);
  isOneKind = kinds.empty() || runStart.back() == 0;
}

std::shared_ptr<const OrderedSchedule> StageOptions::schedule() const {
  return schedules->get(parallel.schedule, parallel.pp, static_cast<int>(parallel.microBatches),
                        parallel.virtualStages);
}

// A V-shaped schedule is one table for all stages, so that it is built on the first request for a stage.
void StageOptions::countPeaks() {
  auto ofStages = schedules->stagePeaks(parallel.schedule, parallel.pp, static_cast<int>(parallel.microBatches),
                                        parallel.virtualStages);
  for (const StagePeaks &peaks : *ofStages)
    counted.push_back(countedPeaks(problem.streamBuffers, peaks));
  for (int stage = 0; stage < parallel.pp; ++stage) {
    int like = stage;
    if (stage < parallel.pp - 1) // neither first nor last
      for (int other = 1; other < stage && like == stage; ++other)
        like = likeStage[other] == other && counted[other] == counted[stage] ? other : stage;
    likeStage.push_back(like);
  }
}

const std::vector<StageOption> &StageOptions::memoized(Memo &memo, int stage, int first, int count, bool onlyFastest) {
  if (counted.empty())
    countPeaks();
  // Ranges of equal layers cost the same wherever they begin.
  if (count > 0 && runStart[first + count - 1] <= first)
    first = runStart[first];
  memo.resize(parallel.pp);
  std::vector<std::vector<std::vector<StageOption>>> &byFirst = memo[likeStage[stage]];
  byFirst.resize(std::max<size_t>(byFirst.size(), first + 1));
  std::vector<std::vector<StageOption>> &byCount = byFirst[first];
  byCount.resize(std::max<size_t>(byCount.size(), count + 1));
  if (byCount[count].empty()) {
    std::vector<LayerRange> chunks;
    for (int chunk = 0; chunk < perStage; ++chunk)
      chunks.push_back({first, layersOfChunk(parallel, stage, chunk, count)});
    byCount[count] = choose(stage, chunks, onlyFastest);
  }
  return byCount[count];
}

const std::vector<StageOption> &StageOptions::options(int stage, int first, int count) {
  return memoized(paretoSets, stage, first, count, /*onlyFastest=*/false);
}

const StageOption &StageOptions::fastest(int stage, int first, int count) {
  bool isQuicker = hasSeveralOptions(parallel); // otherwise the Pareto set has only this option
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
  return std::ranges::min(kRecomputes, {},
                          [&](Recompute recompute) { return segmentSeconds(cost, recompute).total(); });
}

} // namespace

// Returns the fastest classes without a memory limit, or the pinned class.
std::vector<RecomputedLayers> StageOptions::unconstrained(const std::vector<LikeLayers> &kinds) const {
  std::vector<RecomputedLayers> recomputed;
  for (const LikeLayers &like : kinds) {
    int layers = static_cast<int>(like.chunks.size());
    Recompute recompute = parallel.recompute.value_or(fastestClass(costs->kinds[like.kind]));
    recomputed.push_back({recompute == Recompute::Full ? layers : 0, recompute == Recompute::Selective ? layers : 0});
  }
  return recomputed;
}

std::vector<StageOption> StageOptions::choose(int stage, std::span<const LayerRange> chunks, bool onlyFastest) {
  std::vector<LikeLayers> kinds;
  // Keeping everything is fastest, except that with offloaded activations keeping less may be faster.
  bool isFree = parallel.choosesRecompute(), mayKeepLess = isFree && parallel.offloadActivations;
  if (mayKeepLess || !isFree)
    kinds = layersByKind(*costs, chunks);
  StageOption first = price(stage, chunks, unconstrained(kinds));
  bool isEmpty = std::ranges::all_of(chunks, [](const LayerRange &chunk) { return chunk.count == 0; });
  if (!isFree || isEmpty || (first.fits && (!mayKeepLess || onlyFastest)))
    return {first};
  if (!mayKeepLess)
    kinds = layersByKind(*costs, chunks);
  RecomputeChoices found = chooseRecompute(*costs, kinds, roomOf(stage), onlyFastest || !hasSeveralOptions(parallel));
  complete = complete && found.isComplete;
  visits += found.visits;
  ++chosen;
  if (!found.fits)
    return {price(stage, chunks, found.list.front().recomputed)};
  std::vector<StageOption> options(found.list.size(), first); // the options differ only in recompute
  for (size_t i = 0; i < options.size(); ++i) {
    options[i].fits = true;
    options[i].recomputed = std::move(found.list[i].recomputed);
    options[i].seconds = std::move(found.list[i].seconds);
  }
  return options;
}

// Returns the memory of the stage that was priced last, without the part that depends on what its layers keep.
StageRoom StageOptions::roomOf(int stage) const {
  StageRoom room;
  const StageContent &content = parts.stage;
  room.inFlight = counted[stage].moments;
  room.live = counted[stage].chunks;
  for (const SavedBytes &chunk : parts.saved)
    room.ends.push_back(chunk.ends);
  content.visitLayers(
      [&](size_t kind, Recompute, int count) { room.stepBytes += count * costs->kinds[kind].stepBytes; });
  for (const auto &[present, cost] : {std::pair(content.embed, &costs->embed), std::pair(content.head, &costs->head)})
    if (present) {
      room.endsPeakBytes = std::max(room.endsPeakBytes, peakBytes(*cost, Recompute::None));
      room.stepBytes += cost->stepBytes;
    }
  StageContent nothingSaved = content;
  nothingSaved.savedInFlight = SavedBytes{};
  StageMemory memory = stageMemory(problem, *costs, nothingSaved);
  room.fixedBytes = memory.total() - memory.workspace;
  room.fixedHostBytes = memory.host();
  room.bytes = problem.machine.memoryBytes;
  room.hostBytes = problem.machine.hostShareBytes();
  room.areActivationsOffloaded = parallel.offloadActivations;
  return room;
}

std::vector<std::vector<Recompute>> StageOptions::classesOf(std::span<const LayerRange> chunks,
                                                            const std::vector<RecomputedLayers> &recomputed) const {
  if (parallel.fullLayers == 0)
    return recomputeOfLayers(*costs, chunks, recomputed);
  std::vector<std::vector<Recompute>> classes;
  for (const LayerRange &chunk : chunks) {
    classes.emplace_back(chunk.count);
    std::fill_n(classes.back().begin(), std::min(chunk.count, parallel.fullLayers), Recompute::Full);
  }
  return classes;
}

StageOption StageOptions::price(int stage, std::span<const LayerRange> chunks,
                                const std::vector<RecomputedLayers> &recomputed) {
  if (counted.empty())
    countPeaks();
  std::vector<std::vector<Recompute>> recompute = classesOf(chunks, recomputed);
  StageOption option;
  option.recomputed = recomputed;
  assembleStage(problem, parallel, *costs, stage, counted[stage], chunks, recompute, parts);
  for (const StageContent &chunk : parts.chunks)
    option.seconds.push_back(chunkSeconds(*costs, chunk));
  StageMemory memory = stageMemory(problem, *costs, parts.stage);
  option.bytes = memory.total();
  option.hostBytes = memory.host();
  option.fits = option.bytes <= problem.machine.memoryBytes && option.hostBytes <= problem.machine.hostShareBytes();
  option.stepSeconds = stepPhase(*costs, parts.stage).total();
  return option;
}

LaidStages layStages(StageOptions &options, const std::vector<int> &counts,
                     const std::vector<std::vector<RecomputedLayers>> &recomputed) {
  const ParallelConfig &config = options.config();
  int perStage = options.chunksPerStage();
  LaidStages laid;
  for (size_t chunk = 0, first = 0; chunk < counts.size(); first += counts[chunk++])
    laid.stages.push_back({static_cast<int>(first), counts[chunk], {}});
  for (int stage = 0; stage < config.pp; ++stage) {
    std::vector<LayerRange> own;
    std::vector<StagePlan *> chunks;
    for (int i = 0; i < perStage; ++i) {
      chunks.push_back(&laid.stages[placement(config).modelChunk(stage, i)]);
      own.push_back({chunks.back()->firstLayer, chunks.back()->layers});
    }
    StageOption option =
        options.price(stage, own, recomputed.empty() ? options.fastest(stage, own).recomputed : recomputed[stage]);
    std::vector<std::vector<Recompute>> kept = options.classesOf(own, option.recomputed);
    for (int i = 0; i < perStage; ++i)
      chunks[i]->recompute = std::move(kept[i]);
    laid.bytes.push_back(option.bytes);
    laid.hostBytes.push_back(option.hostBytes);
  }
  return laid;
}

} // namespace espalier::planner
