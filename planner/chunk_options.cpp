#include "planner/chunk_options.h"

#include <algorithm>
#include <numeric>

namespace espalier::planner {

std::vector<int> chunkLayers(const Plan &axes, int stage, int layers) {
  int perStage = chunksOf(axes.schedule, axes.virtualStages);
  std::vector<int> counts(perStage, layers / perStage);
  bool lastFirst = stage == 0 && !isVShaped(axes.schedule);
  for (int i = 0; i < layers % perStage; ++i)
    ++counts[lastFirst ? perStage - 1 - i : i];
  return counts;
}

std::vector<int> spreadOverChunks(const Plan &axes, const std::vector<int> &totals) {
  std::vector<int> counts(totals.size() * chunksOf(axes.schedule, axes.virtualStages));
  for (int stage = 0; stage < axes.pp; ++stage) {
    std::vector<int> own = chunkLayers(axes, stage, totals[stage]);
    for (size_t chunk = 0; chunk < own.size(); ++chunk)
      counts[modelChunk(stage, static_cast<int>(chunk), axes.pp, isVShaped(axes.schedule))] = own[chunk];
  }
  return counts;
}

int leastLayers(const Problem &problem, const Plan &axes, int stage) {
  int chunks = chunksOf(axes.schedule, axes.virtualStages);
  if (chunks == 1)
    return 1;
  StageContent ends = stageEnds(axes, stage);
  return chunks - (ends.embed && problem.embed >= 0) -
         (ends.head && problem.head >= 0);
}

int leastLayers(const Problem &problem, const Plan &axes) {
  int chunks = axes.pp * chunksOf(axes.schedule, axes.virtualStages);
  return chunks == axes.pp ? chunks : chunks - (problem.embed >= 0) - (problem.head >= 0);
}

ChunkOptions::ChunkOptions(const Problem &problem, const StageOptions &options)
    : problem(problem), options(options), perStage(chunksOf(axes().schedule, axes().virtualStages)) {}

// A V-shaped schedule is a table for all stages, which is not built before the first stage is asked for.
void ChunkOptions::countHeld() {
  const Plan &plan = axes();
  if (isVShaped(plan.schedule))
    held = options.schedule()->mostHeldOf();
  else
    for (int stage = 0; stage < plan.pp; ++stage)
      held.push_back(
          mostHeld(plan.schedule, stage, plan.pp, static_cast<int>(plan.microBatches), plan.virtualStages));
  for (int stage = 0; stage < plan.pp; ++stage) {
    bool isLike = stage > 1 && stage < plan.pp - 1 && held[stage] == held[stage - 1];
    likeStage.push_back(isLike ? likeStage.back() : stage);
  }
  known.resize(plan.pp);
}

const ChunkOption &ChunkOptions::best(int stage, int layers) {
  if (held.empty())
    countHeld();
  std::vector<std::optional<ChunkOption>> &options = known[likeStage[stage]];
  if (options.size() <= static_cast<size_t>(layers))
    options.resize(layers + 1);
  if (!options[layers]) {
    std::vector<LayerRange> chunks;
    for (int count : chunkLayers(axes(), stage, layers))
      chunks.push_back({0, count});
    options[layers] = best(stage, chunks);
  }
  return *options[layers];
}

ChunkOption ChunkOptions::best(int stage, std::span<const LayerRange> chunks) {
  if (held.empty())
    countHeld();
  int layers = 0;
  for (const LayerRange &chunk : chunks)
    layers += chunk.count;
  if (table().commonRecompute) {
    RepeatedLayers all;
    (*table().commonRecompute == Recompute::Full ? all.full : all.selective) =
        *table().commonRecompute == Recompute::None ? 0 : layers;
    return price(stage, chunks, all);
  }
  ChunkOption best = price(stage, chunks, {});
  for (int full = 0; full <= layers && !(best.fits && best.repeated.full + best.repeated.selective == 0); ++full) {
    if (best.fits && price(stage, chunks, {full, 0}).repeatSeconds >= best.repeatSeconds)
      break; // more only repeat more
    ChunkOption option = fewestSelective(stage, chunks, full);
    bool isLess = option.fits ? !best.fits || option.repeatSeconds < best.repeatSeconds
                              : !best.fits && option.bytes < best.bytes;
    if (isLess)
      best = std::move(option);
  }
  return best;
}

// Each that keeps less takes fewer bytes, but the first may bring a larger transient.
ChunkOption ChunkOptions::fewestSelective(int stage, std::span<const LayerRange> chunks, int full) const {
  int left = -full;
  for (const LayerRange &chunk : chunks)
    left += chunk.count;
  ChunkOption none = price(stage, chunks, {full, 0}), most = price(stage, chunks, {full, left});
  if (none.fits || (!most.fits && none.bytes <= most.bytes) || left == 0)
    return none;
  int low = 0; // does not fit
  while (most.fits && most.repeated.selective > low + 1) {
    ChunkOption middle = price(stage, chunks, {full, (low + most.repeated.selective) / 2});
    if (middle.fits)
      most = std::move(middle);
    else
      low = middle.repeated.selective;
  }
  return most;
}

std::vector<std::vector<Recompute>> ChunkOptions::keep(std::span<const LayerRange> chunks,
                                                       const RepeatedLayers &repeated) const {
  std::vector<std::vector<Recompute>> kept;
  int most = 0, next = 0;
  for (const LayerRange &chunk : chunks) {
    kept.emplace_back(chunk.count);
    most = std::max(most, chunk.count);
  }
  for (int place = 0; place < most; ++place)
    for (std::vector<Recompute> &chunk : kept)
      if (place < static_cast<int>(chunk.size())) {
        chunk[place] = next < repeated.full                        ? Recompute::Full
                       : next < repeated.full + repeated.selective ? Recompute::Selective
                                                                   : Recompute::None;
        ++next;
      }
  return kept;
}

ChunkOption ChunkOptions::price(int stage, std::span<const LayerRange> chunks, const RepeatedLayers &repeated) const {
  const Plan &plan = axes();
  const CostTable &costs = table();
  std::vector<std::vector<Recompute>> kept = keep(chunks, repeated);
  StageContent content = stageEnds(plan, stage);
  content.layers.resize(problem.kinds.size());
  std::vector<SavedBytes> saved;
  ChunkOption option;
  option.repeated = repeated;
  for (int chunk = 0; chunk < perStage; ++chunk) {
    int position = modelChunk(stage, chunk, plan.pp, isVShaped(plan.schedule));
    StageContent alone;
    alone.embed = position == 0;
    alone.head = position == plan.pp * perStage - 1;
    alone.layers.resize(problem.kinds.size());
    for (int layer = 0; layer < chunks[chunk].count; ++layer) {
      int kind = costs.layerKinds[chunks[chunk].first + layer], recompute = static_cast<int>(kept[chunk][layer]);
      ++alone.layers[kind][recompute];
      ++content.layers[kind][recompute];
      option.repeatSeconds += costs.kinds[kind].recompute[recompute].total();
    }
    saved.push_back(savedBytes(costs, alone));
    option.seconds.push_back(chunkSeconds(costs, alone));
  }
  for (const std::vector<int> &moment : held[stage])
    content.inFlight = std::max<double>(content.inFlight, std::accumulate(moment.begin(), moment.end(), 0));
  content.held = heldBytes(held[stage], saved, plan.offloadActivations);
  StageMemory memory = stageMemory(problem, costs, content);
  option.bytes = memory.total();
  option.hostBytes = memory.host();
  option.fits = option.bytes <= problem.machine.memoryBytes && option.hostBytes <= problem.machine.hostShareBytes();
  option.stepSeconds = stepPhase(costs, content).total();
  return option;
}

} // namespace espalier::planner
