#include "planner/search/stage_choices.h"

#include <algorithm>
#include <numeric>

namespace espalier::planner {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

} // namespace

StageChoices::StageChoices(const Problem &problem, StageOptions &stageOptions, const SplitPlayer &player)
    : problem(problem), stageOptions(stageOptions), axes(stageOptions.axes()),
      perStage(chunksOf(axes.schedule, axes.virtualStages)), player(player) {
  if (const auto &pinned = problem.pins.stageLayers) {
    totals.assign(axes.pp, 0);
    for (size_t i = 0; i < pinned->size(); ++i)
      totals[stageOfChunk(static_cast<int>(i), axes.pp, perStage, isVShaped(axes.schedule))] += (*pinned)[i];
  }
  const CostTable &costs = stageOptions.table();
  int from = static_cast<int>(problem.pins.recompute.value_or(Recompute::None));
  int to = axes.offloadActivations && !problem.pins.recompute ? 2 : from; // keeping less may be faster
  for (int kind : costs.layerKinds) {
    ChunkSeconds least{kInfinity, 0, 0};
    double total = kInfinity;
    for (int kept = from; kept <= to; ++kept) {
      ChunkSeconds seconds = segmentSeconds(costs.kinds[kind], kept);
      least.forward = std::min(least.forward, seconds.forward);
      total = std::min(total, seconds.total());
    }
    forwards.push_back(forwards.back() + least.forward);
    work.push_back(work.back() + total);
    leastSeconds = std::min(leastSeconds, total);
  }
}

const std::vector<StageOption> &StageChoices::of(int stage, int first, int count) {
  if (!isGiven())
    return stageOptions.choices(stage, first, count);
  given.resize(axes.pp);
  if (given[stage].empty())
    given[stage] = stageOptions.choices(stage, rangesOf(stage));
  return given[stage];
}

double StageChoices::alone(int stage, int first, int count, double target) {
  double m = static_cast<double>(axes.microBatches), edge = player.edgeOf(stage);
  double wait = player.waitOf(stage) + (perStage == 1 ? forwards[first] : 0);
  double least = isGiven() && perStage > 1 ? count * leastSeconds : work[first + count] - work[first];
  if (wait + m * (edge + least) > target * (1 + 1e-9))
    return kInfinity;
  const StageOption &option =
      isGiven() || areUnlike() ? of(stage, first, count).front() : stageOptions.best(stage, first, count);
  if (!option.fits)
    return kInfinity;
  double seconds = edge;
  for (const ChunkSeconds &chunk : option.seconds)
    seconds += chunk.total();
  return wait + m * seconds + option.stepSeconds;
}

std::vector<LayerRange> StageChoices::rangesOf(int stage) const {
  std::vector<LayerRange> ranges;
  for (int chunk = 0; chunk < perStage; ++chunk) {
    auto pinned = problem.pins.stageLayers->begin(), here = pinned + player.position(stage, chunk);
    ranges.push_back({std::accumulate(pinned, here, 0), *here});
  }
  return ranges;
}

} // namespace espalier::planner
