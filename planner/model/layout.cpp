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

// Returns the stage with the layers of all its chunks, and with their peak of micro-batches in flight.
StageContent stageContent(const Problem &problem, const Plan &plan, const Layout &layout, int stage) {
  StageContent content = stageEnds(plan, stage);
  content.layers.resize(problem.kinds.size());
  int perStage = layout.schedule.chunksPerStage;
  std::vector<SavedBytes> saved;
  for (int chunk = 0; chunk < perStage; ++chunk) {
    int position = layout.schedule.modelChunk(stage, chunk);
    StageContent alone = layout.chunks[position];
    alone.embed = position == 0;
    alone.head = position + 1 == static_cast<int>(layout.chunks.size());
    saved.push_back(savedBytes(layout.table, alone));
    alone.visitLayers([&](size_t kind, Recompute recompute, int count) { content.layers[kind][recompute] += count; });
  }
  if (int first = layout.schedule.modelChunk(stage, 0); plan.stages[first].layers > 0)
    content.firstRecomputes = plan.stages[first].recompute.front();
  content.inFlight = peakInFlight(layout.schedule, stage);
  InFlightPeaks peaks = inFlightPeaks(layout.schedule, stage);
  if (problem.streamBuffers.ofEachChunk)
    peaks = peakOfEachChunk(peaks);
  content.savedInFlight = savedInFlight(peaks, saved, plan.offloadActivations);
  content.chunks = chunkEnds(problem, plan, stage, peaks, [&](int chunk) {
    const StagePlan &part = plan.stages[layout.schedule.modelChunk(stage, chunk)];
    return layout.table.passesStream && part.layers > 0 && part.recompute.front() == Recompute::Full;
  });
  return content;
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
