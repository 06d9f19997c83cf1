#include "planner/split_chunks.h"

#include "planner/search.h"

#include <algorithm>

namespace espalier::planner {

namespace {

// Whether stages of chunks end before `limit` as far as their own work and the way of the first micro-batch down to
// them tell; the interleaved schedule's last backward goes the same way up again.
bool mayEndBefore(double limit, const Plan &axes, const std::vector<ChunkSeconds> &seconds) {
  int chunksPerStage = chunksOf(axes.schedule, axes.virtualStages);
  bool vShape = isVShaped(axes.schedule);
  double above = 0;
  for (int stage = 0; stage < axes.pp; ++stage) {
    double busy = 0;
    for (int chunk = 0; chunk < chunksPerStage; ++chunk)
      busy += seconds[modelChunk(stage, chunk, axes.pp, vShape)].total();
    if (above + static_cast<double>(axes.microBatches) * busy >= limit)
      return false;
    above += vShape ? seconds[stage].forward : seconds[stage].total();
  }
  return true;
}

} // namespace

SplitResult evenChunks(StageOptions &options, double limit) {
  const Plan &axes = options.axes();
  const CostTable &table = options.table();
  SplitResult result;
  result.lowerBound = std::max(limit, 0.0);
  int chunksPerStage = chunksOf(axes.schedule, axes.virtualStages), chunks = chunksPerStage * axes.pp;
  int layers = static_cast<int>(table.layerKinds.size());
  const std::vector<int> &kinds = table.layerKinds;
  if (layers % chunks != 0 || std::count(kinds.begin(), kinds.end(), kinds.front()) != layers)
    return result;
  int count = layers / chunks;
  bool vShape = isVShaped(axes.schedule);
  const SegmentCost &layer = table.kinds[kinds.front()];
  int kept = static_cast<int>(table.commonRecompute.value_or(Recompute::None)); // takes least, or is the only choice
  double forward = layer.forward.total() + layer.forwardTransfer[kept], repeated = layer.recompute[kept].total();
  std::vector<ChunkSeconds> seconds(chunks), edges(chunks);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const ChunkSeconds &edge = edges[chunk] = edgeSeconds(table, chunk, axes.pp, chunksPerStage, vShape);
    seconds[chunk] = {count * forward + edge.forward, count * (layer.backward.total() + repeated) + edge.backward,
                      count * layer.weight.total() + edge.weight};
  }
  if (!mayEndBefore(limit, axes, seconds))
    return result;
  std::vector<double> steps(axes.pp);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    int stage = stageOfChunk(chunk, axes.pp, chunksPerStage, vShape);
    const StageOption &option = options.best(stage, chunk * count, count);
    if (!option.fits)
      return result;
    seconds[chunk] = {option.seconds.forward + edges[chunk].forward, option.seconds.backward + edges[chunk].backward,
                      option.seconds.weight + edges[chunk].weight};
    steps[stage] = option.stepSeconds;
  }
  if (!mayEndBefore(limit - *std::min_element(steps.begin(), steps.end()), axes, seconds))
    return result;
  double played = playedStepSeconds(*options.schedule(), seconds, steps);
  result.played = 1;
  if (played < limit) {
    result.seconds = result.lowerBound = played;
    result.counts.assign(chunks, count);
  }
  return result;
}

std::vector<StagePlan> layChunks(StageOptions &options, const std::vector<int> &counts) {
  const Plan &axes = options.axes();
  int chunksPerStage = chunksOf(axes.schedule, axes.virtualStages);
  bool vShape = isVShaped(axes.schedule);
  std::vector<StagePlan> stages;
  for (int chunk = 0, first = 0; chunk < static_cast<int>(counts.size()); first += counts[chunk++])
    stages.push_back({first, counts[chunk], {}});
  for (int stage = 0; stage < axes.pp; ++stage) {
    const StagePlan *widest = nullptr;
    for (int chunk = 0; chunk < chunksPerStage; ++chunk) {
      const StagePlan &part = stages[modelChunk(stage, chunk, axes.pp, vShape)];
      if (!widest || part.layers > widest->layers)
        widest = &part;
    }
    if (widest->layers == 0)
      continue;
    std::vector<Recompute> kept = options.keep(stage, widest->firstLayer, widest->layers);
    for (int chunk = 0; chunk < chunksPerStage; ++chunk) {
      StagePlan &part = stages[modelChunk(stage, chunk, axes.pp, vShape)];
      part.recompute.assign(kept.end() - part.layers, kept.end());
    }
  }
  return stages;
}

SplitResult pinnedChunks(const Problem &problem, StageOptions &options, double limit) {
  SplitResult result;
  result.lowerBound = std::max(limit, 0.0);
  Plan plan = options.axes();
  plan.stages = layChunks(options, *problem.pins.stageLayers);
  Prediction prediction = pricePlan(problem, plan).prediction;
  result.played = 1;
  if (!prediction.fits() || prediction.stepSeconds >= limit)
    return result;
  result.counts = *problem.pins.stageLayers;
  result.seconds = prediction.stepSeconds;
  for (StagePlan &stage : plan.stages)
    stage.recompute.assign(stage.layers, options.table().commonRecompute.value_or(Recompute::None));
  result.lowerBound = std::min(result.seconds, pricePlan(problem, plan).prediction.stepSeconds);
  return result;
}

} // namespace espalier::planner
