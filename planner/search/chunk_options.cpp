#include "planner/search/chunk_options.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace espalier::planner {

int layersOfChunk(const Plan &axes, int stage, int chunk, int layers) {
  int perStage = chunksOf(axes.schedule, axes.virtualStages), more = layers % perStage;
  bool isLastFirst = stage == 0 && !isVShaped(axes.schedule);
  return layers / perStage + (isLastFirst ? chunk >= perStage - more : chunk < more);
}

std::vector<int> spreadOverChunks(const Plan &axes, const std::vector<int> &totals) {
  int perStage = chunksOf(axes.schedule, axes.virtualStages);
  std::vector<int> counts(totals.size() * perStage);
  for (int stage = 0; stage < axes.pp; ++stage)
    for (int chunk = 0; chunk < perStage; ++chunk)
      counts[modelChunk(stage, chunk, axes.pp, isVShaped(axes.schedule))] =
          layersOfChunk(axes, stage, chunk, totals[stage]);
  return counts;
}

int leastLayers(const Problem &problem, const Plan &axes, int stage) {
  int chunks = chunksOf(axes.schedule, axes.virtualStages);
  if (chunks == 1)
    return 1;
  StageContent ends = stageEnds(axes, stage);
  return chunks - (ends.embed && problem.embed >= 0) - (ends.head && problem.head >= 0);
}

int leastLayers(const Problem &problem, const Plan &axes) {
  int chunks = axes.pp * chunksOf(axes.schedule, axes.virtualStages);
  return chunks == axes.pp ? chunks : chunks - (problem.embed >= 0) - (problem.head >= 0);
}

bool hasSeveralChoices(const Problem &problem, const Plan &axes) {
  return chunksOf(axes.schedule, axes.virtualStages) > 1 || (axes.offloadActivations && !problem.pins.recompute);
}

ChunkOptions::ChunkOptions(const Problem &problem, const StageOptions &options)
    : problem(problem), options(options), axes(options.axes()), costs(options.table()),
      perStage(chunksOf(axes.schedule, axes.virtualStages)) {}

// A V-shaped schedule is a table for all stages, which is not built before the first stage is asked for.
void ChunkOptions::countHeld() {
  held = options.mostHeld();
  if (problem.streamBuffers.ofEachChunk) {
    auto apart = std::make_shared<std::vector<HeldChunks>>();
    for (const HeldChunks &moments : *held)
      apart->push_back(heldApart(moments));
    held = std::move(apart);
  }
  for (int stage = 0; stage < axes.pp; ++stage) {
    int like = stage;
    if (stage < axes.pp - 1) // between the ends
      for (int other = 1; other < stage && like == stage; ++other)
        like = likeStage[other] == other && (*held)[other] == (*held)[stage] ? other : stage;
    likeStage.push_back(like);
    int most = 0;
    for (const std::vector<int> &moment : (*held)[stage])
      most = std::max(most, std::accumulate(moment.begin(), moment.end(), 0));
    mostInFlight.push_back(std::max(most, 1));
  }
}

template <typename Find>
const std::vector<ChunkOption> &ChunkOptions::remembered(Table &table, int stage, int layers, Find find) {
  if (!held)
    countHeld();
  table.resize(axes.pp);
  std::vector<std::vector<ChunkOption>> &places = table[likeStage[stage]];
  if (places.size() <= static_cast<size_t>(layers))
    places.resize(layers + 1);
  if (places[layers].empty()) {
    std::vector<LayerRange> chunks;
    for (int chunk = 0; chunk < perStage; ++chunk)
      chunks.push_back({0, layersOfChunk(axes, stage, chunk, layers)});
    places[layers] = find(chunks);
  }
  return places[layers];
}

const std::vector<ChunkOption> &ChunkOptions::choices(int stage, int layers) {
  return remembered(all, stage, layers, [&](const auto &chunks) { return choose(stage, chunks, /*isOne=*/false); });
}

const ChunkOption &ChunkOptions::best(int stage, int layers) {
  return remembered(first, stage, layers, [&](const auto &chunks) { return choose(stage, chunks, /*isOne=*/true); })
      .front();
}

std::vector<ChunkOption> ChunkOptions::choices(int stage, std::span<const LayerRange> chunks) {
  return choose(stage, chunks, /*isOne=*/false);
}

ChunkOption ChunkOptions::best(int stage, std::span<const LayerRange> chunks) {
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
std::vector<RepeatedLayers> ChunkOptions::fastest(const std::vector<LikeLayers> &kinds) const {
  std::vector<RepeatedLayers> repeated;
  for (const LikeLayers &like : kinds) {
    int layers = static_cast<int>(like.chunks.size());
    const auto &pinned = problem.pins.recompute;
    Recompute kept = pinned ? *pinned : fastestClass(costs.kinds[like.kind]);
    repeated.push_back({kept == Recompute::Full ? layers : 0, kept == Recompute::Selective ? layers : 0});
  }
  return repeated;
}

std::vector<ChunkOption> ChunkOptions::choose(int stage, std::span<const LayerRange> chunks, bool isOne) {
  std::vector<LikeLayers> kinds;
  bool isFree = !problem.pins.recompute, mayKeepLess = isFree && axes.offloadActivations;
  if (mayKeepLess || !isFree)
    kinds = layersByKind(costs, chunks);
  ChunkOption first = price(stage, chunks, fastest(kinds));
  bool isEmpty = std::ranges::all_of(chunks, [](const LayerRange &chunk) { return chunk.count == 0; });
  if (!isFree || isEmpty || (first.fits && (!mayKeepLess || isOne)))
    return {first};
  if (!mayKeepLess)
    kinds = layersByKind(costs, chunks);
  RepeatChoices found = chooseRepeats(costs, kinds, roomOf(stage), isOne);
  complete = complete && found.isComplete;
  if (!found.fits)
    return {price(stage, chunks, found.list.front().repeated)};
  std::vector<ChunkOption> options(found.list.size(), first); // they differ in what is repeated
  for (size_t i = 0; i < options.size(); ++i) {
    options[i].fits = true;
    options[i].repeated = std::move(found.list[i].repeated);
    options[i].seconds = std::move(found.list[i].seconds);
  }
  return options;
}

// Of the stage that was priced.
StageRoom ChunkOptions::roomOf(int stage) const {
  StageRoom room;
  room.held = (*held)[stage];
  for (const SavedBytes &chunk : saved)
    room.ends.push_back(chunk.ends);
  for (size_t kind = 0; kind < content.layers.size(); ++kind)
    for (int count : content.layers[kind])
      room.stepBytes += count * costs.kinds[kind].stepBytes;
  for (const auto &[present, cost] : {std::pair(content.embed, &costs.embed), std::pair(content.head, &costs.head)})
    if (present) {
      room.endsPeakBytes = std::max(room.endsPeakBytes, peakBytes(*cost, 0));
      room.stepBytes += cost->stepBytes;
    }
  StageContent nothingHeld = content;
  nothingHeld.held = SavedBytes{};
  StageMemory memory = stageMemory(problem, costs, nothingHeld);
  room.fixedBytes = memory.total() - memory.workspace;
  room.fixedHostBytes = memory.host();
  room.bytes = problem.machine.memoryBytes;
  room.hostBytes = problem.machine.hostShareBytes();
  room.areLayersElsewhere = axes.offloadActivations;
  return room;
}

ChunkOption ChunkOptions::price(int stage, std::span<const LayerRange> chunks,
                                const std::vector<RepeatedLayers> &repeated) {
  if (!held)
    countHeld();
  parts.resize(perStage);
  content = stageEnds(axes, stage);
  content.layers.resize(problem.kinds.size());
  std::vector<std::vector<Recompute>> kept = keptLayers(costs, chunks, repeated);
  ChunkOption option;
  option.repeated = repeated;
  saved.clear();
  for (int chunk = 0; chunk < perStage; ++chunk) {
    StageContent &part = parts[chunk];
    part.layers.assign(problem.kinds.size(), {});
    for (int place = 0; place < chunks[chunk].count; ++place) {
      int kind = costs.layerKinds[chunks[chunk].first + place], index = static_cast<int>(kept[chunk][place]);
      ++part.layers[kind][index];
      ++content.layers[kind][index];
    }
    int position = modelChunk(stage, chunk, axes.pp, isVShaped(axes.schedule));
    part.embed = position == 0;
    part.head = position == axes.pp * perStage - 1;
    saved.push_back(savedBytes(costs, part));
    option.seconds.push_back(chunkSeconds(costs, part));
  }
  content.inFlight = mostInFlight[stage];
  content.held = heldBytes((*held)[stage], saved, axes.offloadActivations);
  content.chunks = chunkEnds(problem, axes, stage, (*held)[stage], [&](int position) {
    int chunk = 0;
    while (modelChunk(stage, chunk, axes.pp, isVShaped(axes.schedule)) != position)
      ++chunk;
    return costs.passesStream && !kept[chunk].empty() && kept[chunk].front() == Recompute::Full;
  });
  StageMemory memory = stageMemory(problem, costs, content);
  option.bytes = memory.total();
  option.hostBytes = memory.host();
  option.fits = option.bytes <= problem.machine.memoryBytes && option.hostBytes <= problem.machine.hostShareBytes();
  option.stepSeconds = stepPhase(costs, content).total();
  return option;
}

} // namespace espalier::planner
