// Prices one given plan by playing its schedule.
#include "planner/price.h"

#include "planner/model/error.h"
#include "planner/model/layout.h"

#include <algorithm>

namespace espalier::planner {

namespace {

void layEvenly(const Problem &problem, Plan &plan) {
  std::vector<int> counts = evenChunks(problem, plan);
  for (size_t chunk = 0, first = 0; chunk < counts.size(); first += counts[chunk++])
    plan.stages.push_back({static_cast<int>(first), counts[chunk],
                           std::vector<Recompute>(counts[chunk], problem.pins.recompute.value_or(Recompute::None))});
}

// Adds `count` segments of one chunk for all micro-batches.
void addSegment(TimeBreakdown &time, const SegmentCost &cost, Recompute recompute, double count, double microBatches) {
  for (const PhaseSeconds *phase : {&cost.forward, &cost.backward, &cost.weight})
    time.add(*phase, count * microBatches);
  double transfer = cost.recompute[recompute].hostTransfer;
  time.recompute += count * microBatches * (cost.recompute[recompute].total() - transfer);
  transfer += cost.forwardTransfer[recompute] + cost.weightTransfer[recompute];
  time.hostTransfer += count * microBatches * transfer;
}

// Adds the time of one stage and its idle time. The entries grow by `stepSeconds` in all.
void addStage(TimeBreakdown &time, const Plan &plan, const Layout &layout, const Played &played, int stage,
              double stepSeconds) {
  double m = static_cast<double>(plan.microBatches);
  int last = static_cast<int>(layout.chunks.size()) - 1;
  for (int chunk = 0; chunk < layout.schedule.chunksPerStage; ++chunk) {
    int position = layout.schedule.modelChunk(stage, chunk);
    const StageContent &content = layout.chunks[position];
    content.visitLayers([&](size_t kind, Recompute recompute, int count) {
      addSegment(time, layout.table.kinds[kind], recompute, count, m);
    });
    if (content.embed)
      addSegment(time, layout.table.embed, Recompute::None, 1, m);
    if (content.head)
      addSegment(time, layout.table.head, Recompute::None, 1, m);
    int neighbours = 0;
    for (int other : {position - 1, position + 1})
      neighbours += other >= 0 && other <= last && layout.schedule.stageOf(other) != stage;
    time.communication[Axis::Pp] += m * neighbours * layout.table.boundarySeconds;
  }
  PhaseSeconds step = layout.step[stage];
  time.bubble += std::max(0.0, stepSeconds - played.busySeconds[stage] - step.total()); // rounding may make it negative
  time.optimizer += step.compute;
  step.compute = 0;
  time.add(step, 1);
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
  // Devices that share cores: while one waits, another one uses its core, until all work is done.
  double work = 0;
  for (int stage = 0; stage < plan.pp; ++stage)
    work += (played.busySeconds[stage] + layout.step[stage].total()) / plan.pp;
  prediction.stepSeconds = std::max(prediction.stepSeconds, problem.machine.devicesPerCore() * work);
  for (int stage = 0; stage < plan.pp; ++stage)
    addStage(prediction.time, plan, layout, played, stage, prediction.stepSeconds);
  prediction.time.scale(1.0 / plan.pp);
  prediction.bubbleShare = prediction.time.bubble / prediction.stepSeconds;
  prediction.memory = layout.memory;
  for (const StageMemory &memory : layout.memory) {
    prediction.peakBytes = std::max(prediction.peakBytes, memory.total());
    prediction.hostPeakBytes = std::max(prediction.hostPeakBytes, memory.host());
  }
  prediction.timeError = timeError(problem, plan);
  prediction.memoryLimitBytes = problem.machine.memoryBytes;
  prediction.marginBytes = problem.machine.marginBytes;
  prediction.hostLimitBytes = problem.machine.hostShareBytes();
  double samples = static_cast<double>(plan.globalBatch());
  prediction.tokensPerSecond = samples * static_cast<double>(problem.tokensPerSample) / prediction.stepSeconds;
  prediction.mfu = problem.modelFlops * samples / (prediction.stepSeconds * problem.machine.peakFlops * plan.ranks());
  bool runs = problem.matmulFormat.name.empty() && problem.capability.runs(plan);
  return {std::move(plan), std::move(prediction), runs};
}

} // namespace espalier::planner
