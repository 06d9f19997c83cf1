#include "planner/model/layout.h"

namespace espalier::planner {

Layout layOut(const Problem &problem, const Plan &plan) {
  Layout layout;
  layout.table = buildCostTable(problem, plan);
  layout.schedule = buildSchedule(plan.schedule, plan.pp, static_cast<int>(plan.microBatches), plan.virtualStages);
  layout.chunks.resize(plan.stages.size());
  layout.seconds.resize(plan.stages.size());
  for (int stage = 0; stage < plan.pp; ++stage) {
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
    layout.memory.push_back(stageMemory(problem, layout.table, parts.stage));
    layout.step.push_back(stepPhase(layout.table, parts.stage));
    for (int chunk = 0; chunk < layout.schedule.chunksPerStage; ++chunk) {
      int position = layout.schedule.modelChunk(stage, chunk);
      layout.seconds[position] = chunkSeconds(layout.table, parts.chunks[chunk]);
      layout.seconds[position].add(edgeSeconds(layout.table, position, layout.schedule));
      layout.chunks[position] = std::move(parts.chunks[chunk]);
    }
  }
  return layout;
}

} // namespace espalier::planner
