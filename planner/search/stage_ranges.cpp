#include "planner/search/stage_ranges.h"

#include <algorithm>
#include <numeric>

namespace espalier::planner {

StageRanges::StageRanges(const Problem &problem, StageOptions &stageOptions)
    : problem(problem), stageOptions(stageOptions), config(stageOptions.config()),
      perStage(stageOptions.chunksPerStage()) {
  Placement chunkPlaces = placement(config);
  const CostTable &costs = stageOptions.table();
  double forward = 0; // of the edges above
  for (int stage = 0; stage < config.pp; ++stage) {
    waits.push_back(forward);
    edges.push_back(0);
    for (int chunk = 0; chunk < perStage; ++chunk)
      edges[stage] += planner::edgeSeconds(costs, chunkPlaces.modelChunk(stage, chunk), chunkPlaces).total();
    forward += planner::edgeSeconds(costs, stage, chunkPlaces).forward;
  }
  if (const auto &given = problem.pins.stageLayers) {
    totals.assign(config.pp, 0);
    for (size_t i = 0; i < given->size(); ++i)
      totals[chunkPlaces.stageOf(static_cast<int>(i))] += (*given)[i];
  }
  // Keeping everything is fastest, except that with offloaded activations keeping less may be faster.
  auto mayBeFastest = [&](Recompute recompute) {
    const auto &pinned = config.recompute;
    return pinned ? recompute == *pinned : recompute == Recompute::None || config.offloadActivations;
  };
  for (int kind : costs.layerKinds) {
    double leastForward = kInfinity, least = leastForward;
    for (Recompute recompute : kRecomputes) {
      if (!mayBeFastest(recompute))
        continue;
      ChunkSeconds seconds = segmentSeconds(costs.kinds[kind], recompute);
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
  pinned.resize(config.pp);
  if (pinned[stage].empty())
    pinned[stage] = stageOptions.options(stage, pinnedRanges(stage));
  return pinned[stage];
}

double StageRanges::stageBound(int stage, int first, int count, double target) {
  double m = static_cast<double>(config.microBatches), edge = edges[stage];
  double wait = waits[stage] + (perStage == 1 ? forwards[first] : 0);
  double least = arePinned() && perStage > 1 ? count * leastSeconds : work[first + count] - work[first];
  if (wait + m * (edge + least) > target * (1 + 1e-9))
    return kInfinity;
  const StageOption &option =
      arePinned() || areUnlike() ? options(stage, first, count).front() : stageOptions.fastest(stage, first, count);
  if (!option.fits)
    return kInfinity;
  double seconds = edge;
  for (const ChunkSeconds &chunk : option.seconds)
    seconds += chunk.total();
  return wait + m * seconds + option.stepSeconds;
}

std::vector<LayerRange> StageRanges::pinnedRanges(int stage) const {
  std::vector<LayerRange> ranges;
  for (int chunk = 0; chunk < perStage; ++chunk) {
    auto begin = problem.pins.stageLayers->begin();
    auto here = begin + placement(config).modelChunk(stage, chunk);
    ranges.push_back({std::accumulate(begin, here, 0), *here});
  }
  return ranges;
}

} // namespace espalier::planner
