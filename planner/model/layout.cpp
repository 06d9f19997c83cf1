#include "planner/model/layout.h"

namespace espalier::planner {

namespace {

StageContent chunkContent(const Problem &problem, const CostTable &table, const StagePlan &stage) {
  StageContent content;
  content.layers.resize(problem.kinds.size());
  for (int i = 0; i < stage.layers; ++i)
    ++content.layers[table.layerKinds[stage.firstLayer + i]][stage.recompute[i]];
  return content;
}

StageContent stageContent(const Problem &problem, const Plan &plan, const Layout &layout, int stage) {
  std::vector<LayerRange> ranges;
  std::vector<std::vector<Recompute>> recompute;
  for (int chunk = 0; chunk < layout.schedule.chunksPerStage; ++chunk) {
    const StagePlan &part = plan.stages[layout.schedule.modelChunk(stage, chunk)];
    ranges.push_back({part.firstLayer, part.layers});
    recompute.push_back(part.recompute);
  }
  StageParts parts;
  StagePeaks counted = countedPeaks(problem.streamBuffers, stagePeaks(layout.schedule, stage));
  assembleStage(problem, plan, layout.table, stage, counted, ranges, recompute, parts);
  return parts.stage;
}

} // namespace

Layout layOut(const Problem &problem, const Plan &plan) {
  Layout layout;
  layout.table = buildCostTable(problem, plan);
  layout.schedule = buildSchedule(plan.schedule, plan.pp, static_cast<int>(plan.microBatches), plan.virtualStages);
  for (size_t chunk = 0; chunk < plan.stages.size(); ++chunk) {
    layout.chunks.push_back(chunkContent(problem, layout.table, plan.stages[chunk]));
    layout.seconds.push_back(chunkSeconds(layout.table, layout.chunks.back()));
    layout.seconds.back().add(edgeSeconds(layout.table, static_cast<int>(chunk), layout.schedule));
  }
  for (int stage = 0; stage < plan.pp; ++stage) {
    StageContent content = stageContent(problem, plan, layout, stage);
    layout.memory.push_back(stageMemory(problem, layout.table, content));
    layout.step.push_back(stepPhase(layout.table, content));
  }
  return layout;
}

} // namespace espalier::planner
