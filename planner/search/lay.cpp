#include "planner/search/lay.h"

#include <algorithm>
#include <numeric>

namespace espalier::planner {

std::vector<int> evenChunks(const Problem &problem, const Plan &axes) {
  std::vector<int> totals;
  std::vector<bool> isEnd;
  for (int stage = 0; stage < axes.pp; ++stage) {
    StageContent ends = stageEnds(axes, stage);
    isEnd.push_back(ends.embed || ends.head);
    totals.push_back(leastLayers(problem, axes, stage));
  }
  int left = problem.layerCount() - std::accumulate(totals.begin(), totals.end(), 0);
  if (left < 0) { // too few for so many chunks
    left = problem.layerCount();
    std::ranges::fill(totals, 0);
  }
  for (; left > 0; --left) {
    int least = 0;
    for (int stage = 1; stage < axes.pp; ++stage)
      if (std::pair(totals[stage], isEnd[stage]) < std::pair(totals[least], isEnd[least]))
        least = stage;
    ++totals[least];
  }
  return spreadOverChunks(axes, totals);
}

LaidStages layStages(const Problem &problem, StageOptions &options, const std::vector<int> &counts,
                     const std::vector<std::vector<RepeatedLayers>> &repeated) {
  const Plan &axes = options.axes();
  int perStage = chunksOf(axes.schedule, axes.virtualStages);
  bool areChosen = hasSeveralChoices(problem, axes);
  ChunkOptions choices(problem, options);
  LaidStages laid;
  for (size_t chunk = 0, first = 0; chunk < counts.size(); first += counts[chunk++])
    laid.stages.push_back({static_cast<int>(first), counts[chunk], {}});
  for (int stage = 0; stage < axes.pp; ++stage) {
    if (!areChosen) {
      StagePlan &here = laid.stages[stage];
      here.recompute = options.keep(stage, here.firstLayer, here.layers);
      const StageOption &option = options.best(stage, here.firstLayer, here.layers);
      laid.bytes.push_back(option.bytes);
      laid.hostBytes.push_back(option.hostBytes);
      continue;
    }
    std::vector<LayerRange> own;
    std::vector<StagePlan *> chunks;
    for (int i = 0; i < perStage; ++i) {
      chunks.push_back(&laid.stages[modelChunk(stage, i, axes.pp, isVShaped(axes.schedule))]);
      own.push_back({chunks.back()->firstLayer, chunks.back()->layers});
    }
    ChunkOption option =
        choices.price(stage, own, repeated.empty() ? choices.best(stage, own).repeated : repeated[stage]);
    std::vector<std::vector<Recompute>> kept = keptLayers(options.table(), own, option.repeated);
    for (int i = 0; i < perStage; ++i)
      chunks[i]->recompute = std::move(kept[i]);
    laid.bytes.push_back(option.bytes);
    laid.hostBytes.push_back(option.hostBytes);
  }
  return laid;
}

} // namespace espalier::planner
