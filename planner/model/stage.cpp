#include "planner/model/stage.h"

#include <algorithm>
#include <numeric>

namespace espalier::planner {

ChunkSeconds segmentSeconds(const SegmentCost &cost, Recompute recompute) {
  return {cost.forward.total() + cost.forwardTransfer[recompute],
          cost.backward.total() + cost.recompute[recompute].total(),
          cost.weight.total() + cost.weightTransfer[recompute]};
}

ChunkSeconds chunkSeconds(const CostTable &table, const StageContent &content) {
  ChunkSeconds seconds;
  content.visitLayers([&](size_t kind, Recompute recompute, int count) {
    seconds.add(segmentSeconds(table.kinds[kind], recompute), count);
  });
  return seconds;
}

PhaseSeconds stepPhase(const CostTable &table, const StageContent &content) {
  PhaseSeconds sum;
  PerAxis<double> hideable{};
  double backward = 0, hidden = 0;
  auto add = [&](const SegmentCost &cost, double count) {
    sum.add(cost.step, count);
    backward += count * (cost.backward.total() + cost.weight.total());
    for (int axis = 0; axis < kAxes; ++axis) {
      hideable[axis] += count * cost.hideableStep[axis];
      hidden += count * cost.hideableStep[axis];
    }
  };
  content.visitLayers([&](size_t kind, Recompute, int count) { add(table.kinds[kind], count); });
  if (content.embed)
    add(table.embed, 1);
  if (content.head)
    add(table.head, 1);
  if (content.embed != content.head)
    sum.communication[Axis::Dp] += table.tiedSeconds;
  double exposed = hidden > 0 ? overlappedSeconds(backward, hidden) - backward : 0;
  for (int axis = 0; axis < kAxes && hidden > 0; ++axis)
    sum.communication[axis] += exposed * hideable[axis] / hidden;
  return sum;
}

ChunkSeconds edgeSeconds(const CostTable &costs, int chunk, const Placement &placement) {
  int last = placement.chunks() - 1, here = placement.stageOf(chunk);
  ChunkSeconds seconds;
  if (chunk < last && placement.stageOf(chunk + 1) != here)
    seconds.forward += costs.boundarySeconds;
  if (chunk > 0 && placement.stageOf(chunk - 1) != here)
    seconds.backward += costs.boundarySeconds;
  bool embed = chunk == 0, head = chunk == last;
  for (const auto &[present, cost] : {std::pair(embed, &costs.embed), std::pair(head, &costs.head)})
    if (present)
      seconds.add(segmentSeconds(*cost, Recompute::None));
  return seconds;
}

StageContent stageEnds(const ParallelConfig &config, int stage) {
  StageContent content;
  content.embed = stage == 0;
  content.head = stage == placement(config).headStage();
  return content;
}

int layersOfChunk(const ParallelConfig &config, int stage, int chunk, int layers) {
  int perStage = chunksOf(config.schedule, config.virtualStages), more = layers % perStage;
  bool isLastFirst = stage == 0 && !isVShaped(config.schedule);
  return layers / perStage + (isLastFirst ? chunk >= perStage - more : chunk < more);
}

std::vector<int> spreadOverChunks(const ParallelConfig &config, const std::vector<int> &totals) {
  Placement chunkPlaces = placement(config);
  int perStage = chunkPlaces.chunksPerStage;
  std::vector<int> counts(totals.size() * perStage);
  for (int stage = 0; stage < config.pp; ++stage)
    for (int chunk = 0; chunk < perStage; ++chunk)
      counts[chunkPlaces.modelChunk(stage, chunk)] = layersOfChunk(config, stage, chunk, totals[stage]);
  return counts;
}

int leastLayers(const Problem &problem, const ParallelConfig &config, int stage) {
  int chunks = chunksOf(config.schedule, config.virtualStages);
  if (chunks == 1)
    return 1;
  StageContent ends = stageEnds(config, stage);
  return chunks - (ends.embed && problem.embed >= 0) - (ends.head && problem.head >= 0);
}

int leastLayers(const Problem &problem, const ParallelConfig &config) {
  int chunks = config.pp * chunksOf(config.schedule, config.virtualStages);
  return chunks == config.pp ? chunks : chunks - (problem.embed >= 0) - (problem.head >= 0);
}

std::vector<int> evenChunks(const Problem &problem, const ParallelConfig &config) {
  size_t chunks = static_cast<size_t>(config.pp) * chunksOf(config.schedule, config.virtualStages);
  if (problem.pins.stageLayers && problem.pins.stageLayers->size() == chunks)
    return *problem.pins.stageLayers;
  std::vector<int> totals;
  std::vector<bool> isEnd;
  for (int stage = 0; stage < config.pp; ++stage) {
    StageContent ends = stageEnds(config, stage);
    isEnd.push_back(ends.embed || ends.head);
    totals.push_back(leastLayers(problem, config, stage));
  }
  int left = problem.layerCount() - std::accumulate(totals.begin(), totals.end(), 0);
  if (left < 0) { // too few layers for so many chunks
    left = problem.layerCount();
    std::ranges::fill(totals, 0);
  }
  for (; left > 0; --left) {
    int least = 0;
    for (int stage = 1; stage < config.pp; ++stage)
      if (std::pair(totals[stage], isEnd[stage]) < std::pair(totals[least], isEnd[least]))
        least = stage;
    ++totals[least];
  }
  return spreadOverChunks(config, totals);
}

namespace {

// Returns the class of the layer at index `place` of the recompute order of its kind.
Recompute recomputeAt(const RecomputedLayers &recomputed, int place) {
  return place < recomputed.full                          ? Recompute::Full
         : place < recomputed.full + recomputed.selective ? Recompute::Selective
                                                          : Recompute::None;
}

// Calls visit(chunk, index in the chunk, kind) for all layers of a stage, in recompute order.
template <typename Visit> void visitLayers(const CostTable &costs, std::span<const LayerRange> chunks, Visit visit) {
  int most = 0;
  for (const LayerRange &chunk : chunks)
    most = std::max(most, chunk.count);
  for (int place = 0; place < most; ++place)
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk)
      if (place < chunks[chunk].count)
        visit(static_cast<int>(chunk), place, costs.layerKinds[chunks[chunk].first + place]);
}

} // namespace

std::vector<LikeLayers> layersByKind(const CostTable &costs, std::span<const LayerRange> chunks) {
  std::vector<LikeLayers> kinds;
  visitLayers(costs, chunks, [&](int chunk, int, int kind) {
    auto place = std::ranges::lower_bound(kinds, kind, {}, &LikeLayers::kind);
    if (place == kinds.end() || place->kind != kind)
      place = kinds.insert(place, {kind, {}});
    place->chunks.push_back(chunk);
  });
  return kinds;
}

namespace {

// Returns the bytes of received activations that live longer than the values of their layer. A chunk's first layer
// reads its activation from a buffer of its own, which is held until the weight gradients.
double receivedBytes(const SegmentCost &first, Recompute recompute, const LivePeaks &live) {
  int counted = first.weightReadsStream[recompute] ? live.untilWeight : live.untilBackward;
  return (live.received - counted) * first.streamBytes[recompute];
}

} // namespace

void assembleStage(const Problem &problem, const ParallelConfig &config, const CostTable &costs, int stage,
                   const StagePeaks &counted, std::span<const LayerRange> chunks,
                   const std::vector<std::vector<Recompute>> &recompute, StageParts &parts) {
  size_t perStage = chunks.size();
  Placement chunkPlaces = placement(config);
  StageContent &content = parts.stage;
  StageContent ends = stageEnds(config, stage);
  content.embed = ends.embed, content.head = ends.head;
  content.layers.assign(problem.kinds.size(), {});
  parts.chunks.resize(perStage);
  parts.saved.clear();
  for (size_t chunk = 0; chunk < perStage; ++chunk) {
    StageContent &part = parts.chunks[chunk];
    part.layers.assign(problem.kinds.size(), {});
    for (int place = 0; place < chunks[chunk].count; ++place) {
      int kind = costs.layerKinds[chunks[chunk].first + place];
      ++part.layers[kind][recompute[chunk][place]];
      ++content.layers[kind][recompute[chunk][place]];
    }
    int position = chunkPlaces.modelChunk(stage, static_cast<int>(chunk));
    part.embed = position == 0;
    part.head = position == config.pp * static_cast<int>(perStage) - 1;
    parts.saved.push_back(savedBytes(costs, part, counted.chunks[chunk]));
    if (position > 0 && !recompute[chunk].empty())
      parts.saved.back().ends += receivedBytes(costs.kinds[costs.layerKinds[chunks[chunk].first]],
                                               recompute[chunk].front(), counted.chunks[chunk]);
  }
  content.savedInFlight = savedInFlight(counted.moments, parts.saved, config.offloadActivations);
  content.ends = chunkEnds(problem, config, stage, counted, [&](int chunk) {
    return costs.passesStream && !recompute[chunk].empty() && recompute[chunk].front() == Recompute::Full;
  });
}

std::vector<std::vector<Recompute>> recomputeOfLayers(const CostTable &costs, std::span<const LayerRange> chunks,
                                                      const std::vector<RecomputedLayers> &recomputed) {
  std::vector<std::vector<Recompute>> recompute;
  for (const LayerRange &chunk : chunks)
    recompute.emplace_back(chunk.count);
  if (recomputed.empty())
    return recompute;
  std::vector<LikeLayers> kinds = layersByKind(costs, chunks);
  std::vector<int> seen(kinds.size());
  visitLayers(costs, chunks, [&](int chunk, int place, int kind) {
    auto index = std::ranges::lower_bound(kinds, kind, {}, &LikeLayers::kind) - kinds.begin();
    recompute[chunk][place] = recomputeAt(recomputed[index], seen[index]++);
  });
  return recompute;
}

} // namespace espalier::planner
