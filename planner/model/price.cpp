// Prices one given plan by playing its schedule.
#include "planner/model/price.h"

#include <algorithm>

namespace espalier::planner {

namespace {

void layEvenly(const Problem &problem, Plan &plan) {
  std::vector<int> counts = evenChunks(problem, plan);
  for (size_t chunk = 0, first = 0; chunk < counts.size(); first += counts[chunk++])
    plan.stages.push_back({static_cast<int>(first), counts[chunk],
                           std::vector<Recompute>(counts[chunk], problem.pins.recompute.value_or(Recompute::None))});
}

StageContent chunkContent(const Problem &problem, const CostTable &table, const StagePlan &stage) {
  StageContent content;
  content.layers.resize(problem.kinds.size());
  for (int i = 0; i < stage.layers; ++i)
    ++content.layers[table.layerKinds[stage.firstLayer + i]][static_cast<int>(stage.recompute[i])];
  return content;
}

// The stage with the layers of all its chunks, and what these hold at once.
StageContent stageContent(const Problem &problem, const Plan &plan, const Layout &layout, int stage) {
  StageContent content = stageEnds(plan, stage);
  content.layers.resize(problem.kinds.size());
  int perStage = layout.schedule.chunksPerStage;
  std::vector<SavedBytes> saved;
  for (int chunk = 0; chunk < perStage; ++chunk) {
    int position = modelChunk(stage, chunk, plan.pp, layout.schedule.vShape);
    StageContent alone = layout.chunks[position];
    alone.embed = position == 0;
    alone.head = position + 1 == static_cast<int>(layout.chunks.size());
    saved.push_back(savedBytes(layout.table, alone));
    for (size_t kind = 0; kind < content.layers.size(); ++kind)
      for (int recompute = 0; recompute < 3; ++recompute)
        content.layers[kind][recompute] += alone.layers[kind][recompute];
  }
  if (int first = modelChunk(stage, 0, plan.pp, layout.schedule.vShape); plan.stages[first].layers > 0)
    content.first = plan.stages[first].recompute.front();
  content.inFlight = peakInFlight(layout.schedule, stage);
  HeldChunks moments = mostHeld(layout.schedule, stage);
  if (problem.streamBuffers.ofEachChunk)
    moments = heldApart(moments);
  content.held = heldBytes(moments, saved, plan.offloadActivations);
  content.chunks = chunkEnds(problem, plan, stage, moments, [&](int position) {
    const StagePlan &part = plan.stages[position];
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
    layout.seconds.back().add(edgeSeconds(layout.table, static_cast<int>(chunk), plan.pp,
                                          layout.schedule.chunksPerStage, layout.schedule.vShape));
  }
  for (int stage = 0; stage < plan.pp; ++stage) {
    StageContent content = stageContent(problem, plan, layout, stage);
    layout.memory.push_back(stageMemory(problem, layout.table, content));
    layout.step.push_back(stepPhase(layout.table, content));
  }
  return layout;
}

namespace {

void addPhase(TimeBreakdown &time, const PhaseSeconds &phase, double times) {
  time.compute += times * phase.compute;
  time.tensorCommunication += times * phase.communication[static_cast<int>(Axis::Tp)];
  time.contextCommunication += times * phase.communication[static_cast<int>(Axis::Cp)];
  time.expertCommunication += times * phase.communication[static_cast<int>(Axis::Ep)];
  time.dataCommunication += times * phase.communication[static_cast<int>(Axis::Dp)];
  time.pipelineCommunication += times * phase.communication[static_cast<int>(Axis::Pp)];
  time.hostTransfer += times * phase.hostTransfer;
}

// Adds `count` segments of one chunk for all micro-batches.
void addSegment(TimeBreakdown &time, const SegmentCost &cost, int recompute, double count, double microBatches) {
  for (const PhaseSeconds *phase : {&cost.forward, &cost.backward, &cost.weight})
    addPhase(time, *phase, count * microBatches);
  double transfer = cost.recompute[recompute].hostTransfer;
  time.recompute += count * microBatches * (cost.recompute[recompute].total() - transfer);
  transfer += cost.forwardTransfer[recompute] + cost.weightTransfer[recompute];
  time.hostTransfer += count * microBatches * transfer;
}

// Adds the time of one stage and its idle time, so that the entries grow by `stepSeconds`.
void addStage(TimeBreakdown &time, const Plan &plan, const Layout &layout, const Played &played, int stage,
              double stepSeconds) {
  double m = static_cast<double>(plan.microBatches);
  int last = static_cast<int>(layout.chunks.size()) - 1;
  for (int chunk = 0; chunk < layout.schedule.chunksPerStage; ++chunk) {
    int position = modelChunk(stage, chunk, plan.pp, layout.schedule.vShape);
    const StageContent &content = layout.chunks[position];
    for (size_t kind = 0; kind < content.layers.size(); ++kind)
      for (int recompute = 0; recompute < 3; ++recompute)
        if (int count = content.layers[kind][recompute])
          addSegment(time, layout.table.kinds[kind], recompute, count, m);
    if (position == 0)
      addSegment(time, layout.table.embed, 0, 1, m);
    if (position == last)
      addSegment(time, layout.table.head, 0, 1, m);
    int neighbours = 0;
    for (int other : {position - 1, position + 1})
      neighbours += other >= 0 && other <= last && stageOfChunk(other, plan.pp, layout.schedule.vShape) != stage;
    time.pipelineCommunication += m * neighbours * layout.table.boundarySeconds;
  }
  PhaseSeconds step = layout.step[stage];
  time.bubble += std::max(0.0, stepSeconds - played.busySeconds[stage] - step.total()); // sums are rounded
  time.optimizer += step.compute;
  step.compute = 0;
  addPhase(time, step, 1);
}

} // namespace

PricedPlan pricePlan(const Problem &problem, Plan plan) {
  if (plan.stages.empty())
    layEvenly(problem, plan);
  Layout layout = layOut(problem, plan);
  Played played = play(layout.schedule, layout.seconds);
  Prediction prediction;
  for (int stage = 0; stage < plan.pp; ++stage)
    prediction.stepSeconds = std::max(prediction.stepSeconds, played.endSeconds[stage] + layout.step[stage].total());
  for (int stage = 0; stage < plan.pp; ++stage)
    addStage(prediction.time, plan, layout, played, stage, prediction.stepSeconds);
  prediction.time.scale(1.0 / plan.pp);
  prediction.bubbleShare = prediction.time.bubble / prediction.stepSeconds;
  prediction.memory = layout.memory;
  for (const StageMemory &memory : layout.memory) {
    prediction.peakBytes = std::max(prediction.peakBytes, memory.total());
    prediction.hostPeakBytes = std::max(prediction.hostPeakBytes, memory.host());
  }
  prediction.memoryLimitBytes = problem.machine.memoryBytes;
  prediction.hostLimitBytes = problem.machine.hostShareBytes();
  double samples = static_cast<double>(plan.globalBatch());
  prediction.tokensPerSecond = samples * static_cast<double>(problem.tokensPerSample) / prediction.stepSeconds;
  prediction.mfu = problem.modelFlops * samples / (prediction.stepSeconds * problem.machine.peakFlops * plan.ranks());
  bool runs = problem.capability.runs(plan);
  return {std::move(plan), std::move(prediction), runs};
}

} // namespace espalier::planner
