#include "compiler/layout/stage_calls.h"

#include "planner/answer/explain.h"
#include "planner/model/schedule.h"

namespace espalier {

size_t planStage(const planner::Plan &plan, int stage, int chunk) {
  return static_cast<size_t>(planner::placement(plan).modelChunk(stage, chunk));
}

int headStage(const planner::Plan &plan) { return planner::placement(plan).headStage(); }

namespace {

std::vector<LayerCall> callsOfChunk(const std::vector<SegmentRun> &runs, const planner::Plan &plan, size_t chunk) {
  std::vector<LayerCall> calls;
  const planner::StagePlan &part = plan.stages[chunk];
  if (chunk == 0)
    calls.push_back({runs.front().kind, -1, 0, "none"});
  int layer = 0;
  for (size_t i = 1; i + 1 < runs.size(); ++i)
    for (int repeat = 0; repeat < runs[i].count; ++repeat, ++layer)
      if (layer >= part.firstLayer && layer < part.firstLayer + part.layers)
        calls.push_back({runs[i].kind, layer, static_cast<uint32_t>(layer + 1),
                         recomputeName(part.recompute[layer - part.firstLayer])});
  if (chunk + 1 == plan.stages.size())
    calls.push_back({runs.back().kind, -1, static_cast<uint32_t>(layer + 1), "none"});
  return calls;
}

} // namespace

std::vector<std::vector<LayerCall>> callsOf(const std::vector<SegmentRun> &runs, const planner::Plan &plan, int stage) {
  std::vector<std::vector<LayerCall>> chunks;
  for (int chunk = 0; chunk < planner::chunksOf(plan.schedule, plan.virtualStages); ++chunk)
    chunks.push_back(callsOfChunk(runs, plan, planStage(plan, stage, chunk)));
  return chunks;
}

} // namespace espalier
