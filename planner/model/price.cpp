// Prices one given plan by playing its schedule, and says which constraints it violates.
#include "planner/model/stage.h"
#include "planner/search.h"

#include <algorithm>

namespace espalier::planner {

namespace {

const char *axisName(Axis axis) {
  static constexpr const char *names[] = {"pp", "dp", "cp", "ep", "tp"};
  return names[static_cast<int>(axis)];
}

int axisSize(const Plan &plan, Axis axis) {
  const int sizes[] = {plan.pp, plan.dp, plan.cp, plan.ep, plan.tp};
  return sizes[static_cast<int>(axis)];
}

std::string number(int64_t value) { return std::to_string(value); }

void checkAxes(const Problem &problem, const Plan &plan, std::vector<std::string> &faults) {
  for (Axis axis : {Axis::Cp, Axis::Ep, Axis::Tp}) {
    bool splittable = false;
    for (const Divisibility &limit : problem.limits)
      splittable = splittable || limit.axis == axis;
    if (axisSize(plan, axis) > 1 && !splittable)
      faults.push_back(std::string("nothing in the model can be split over ") + axisName(axis));
  }
  for (const Divisibility &limit : problem.limits) {
    int outer = limit.onlySequenceParallel ? plan.cp : limit.timesTensorRanks ? plan.tp : 1;
    int64_t size = static_cast<int64_t>(axisSize(plan, limit.axis)) * limit.factor * outer;
    if (axisSize(plan, limit.axis) == 1 || (limit.onlySequenceParallel && !plan.sequenceParallel))
      continue;
    if (limit.value % size != 0)
      faults.push_back(limit.name + " (" + number(limit.value) + ") does not divide by " +
                       (limit.factor > 1 ? number(limit.factor) + " * " : "") +
                       (outer > 1 ? (limit.timesTensorRanks ? "tp (" : "cp (") + number(outer) + ") * " : "") +
                       axisName(limit.axis) + " (" + number(axisSize(plan, limit.axis)) + ")");
  }
}

void checkStages(const Problem &problem, const Plan &plan, std::vector<std::string> &faults) {
  size_t wanted = static_cast<size_t>(plan.pp) * chunksOf(plan.schedule, plan.virtualStages);
  if (plan.stages.empty())
    return;
  if (plan.stages.size() != wanted) {
    faults.push_back("the plan lists " + number(plan.stages.size()) + " stages, wanted " + number(wanted));
    return;
  }
  int next = 0;
  for (const StagePlan &stage : plan.stages) {
    if (stage.firstLayer != next || stage.layers < 0 || stage.recompute.size() != static_cast<size_t>(stage.layers))
      faults.push_back("stage at layer " + number(stage.firstLayer) + " does not continue the one before it");
    next = stage.firstLayer + stage.layers;
  }
  if (next != problem.layerCount())
    faults.push_back("the stages hold " + number(next) + " layers, the model has " + number(problem.layerCount()));
}

} // namespace

std::vector<std::string> structuralViolations(const Problem &problem, const Plan &plan) {
  std::vector<std::string> faults;
  if (std::min({plan.dp, plan.tp, plan.pp, plan.cp, plan.ep}) < 1 || plan.microBatchSize < 1 || plan.microBatches < 1) {
    faults.push_back("every axis, the micro-batch size and the number of micro-batches must be at least 1");
    return faults;
  }
  int devices = problem.machine.devices();
  if (plan.ranks() != devices)
    faults.push_back("dp * tp * pp * cp * ep is " + number(plan.ranks()) + ", the machine has " + number(devices) +
                     " devices");
  if (plan.globalBatch() != problem.globalBatch)
    faults.push_back(std::string("micro-batch size * micro-batches * dp") + (plan.ep > 1 ? " * ep" : "") + " is " +
                     number(plan.globalBatch()) + ", the global batch is " + number(problem.globalBatch));
  checkAxes(problem, plan, faults);
  if (plan.sequenceParallel && plan.tp == 1)
    faults.push_back("sequence parallelism needs tp > 1");
  if (plan.zero < 0 || plan.zero > 3)
    faults.push_back("the ZeRO stage is " + number(plan.zero) + ", wanted 0 to 3");
  int chunks = plan.pp * chunksOf(plan.schedule, plan.virtualStages);
  const auto &pinned = problem.pins.stageLayers;
  bool placed = !plan.stages.empty() || (pinned && static_cast<int>(pinned->size()) == chunks); // some without layers
  if (leastLayers(problem, plan) > problem.layerCount() && !(placed && chunks > plan.pp))
    faults.push_back(number(chunks) + " stages for " + number(problem.layerCount()) + " layers");
  std::string schedule =
      whyNotSchedulable(plan.schedule, plan.pp, static_cast<int>(plan.microBatches), plan.virtualStages);
  if (!schedule.empty())
    faults.push_back(schedule);
  if (plan.offloads() && !problem.machine.canOffload())
    faults.push_back("nothing can be offloaded: machine " + problem.machine.name + " has no link to host memory");
  if (plan.offloadParameters && (plan.zero != 3 || !plan.offloadOptimizer))
    faults.push_back("parameters are offloaded under ZeRO 3 only, with the optimizer");
  checkStages(problem, plan, faults);
  return faults;
}

std::vector<std::string> violations(const Problem &problem, const Plan &plan) {
  std::vector<std::string> faults = structuralViolations(problem, plan);
  if (faults.empty() && !buildCostTable(problem, plan).found)
    faults.push_back("the model was not profiled for this combination of axes");
  return faults;
}

namespace {

void spreadLayers(const Problem &problem, Plan &plan) {
  std::vector<int> counts = evenChunks(problem, plan);
  if (problem.pins.stageLayers && problem.pins.stageLayers->size() == counts.size())
    counts = *problem.pins.stageLayers;
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

// A plan laid out on stages: per chunk in model order, and per stage.
struct Layout {
  CostTable table;
  ScheduleTable schedule;
  std::vector<StageContent> chunks;
  std::vector<ChunkSeconds> seconds;
  std::vector<PhaseSeconds> step;
  std::vector<StageMemory> memory;
};

// The stage with the layers of all its chunks, and what these hold at once.
StageContent stageContent(const Problem &problem, const Plan &plan, const Layout &layout, int stage) {
  StageContent content;
  content.layers.resize(problem.kinds.size());
  int perStage = layout.schedule.chunksPerStage;
  std::vector<SavedBytes> saved;
  for (int chunk = 0; chunk < perStage; ++chunk) {
    int position = modelChunk(stage, chunk, plan.pp, layout.schedule.vShape);
    StageContent alone = layout.chunks[position];
    alone.embed = position == 0;
    alone.head = position + 1 == static_cast<int>(layout.chunks.size());
    saved.push_back(savedBytes(layout.table, alone));
    content.embed = content.embed || alone.embed;
    content.head = content.head || alone.head;
    for (size_t kind = 0; kind < content.layers.size(); ++kind)
      for (int recompute = 0; recompute < 3; ++recompute)
        content.layers[kind][recompute] += alone.layers[kind][recompute];
  }
  content.receives = plan.pp > 1 && (stage > 0 || perStage > 1);
  content.sends = plan.pp > 1 && (stage < plan.pp - 1 || perStage > 1);
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

Layout layOut(const Problem &problem, const Plan &plan) {
  Layout layout;
  layout.table = buildCostTable(problem, plan);
  layout.schedule = buildSchedule(plan.schedule, plan.pp, static_cast<int>(plan.microBatches), plan.virtualStages);
  for (size_t chunk = 0; chunk < plan.stages.size(); ++chunk) {
    layout.chunks.push_back(chunkContent(problem, layout.table, plan.stages[chunk]));
    ChunkSeconds seconds = chunkSeconds(layout.table, layout.chunks.back());
    ChunkSeconds edge = edgeSeconds(layout.table, static_cast<int>(chunk), plan.pp, layout.schedule.chunksPerStage,
                                    layout.schedule.vShape);
    layout.seconds.push_back(
        {seconds.forward + edge.forward, seconds.backward + edge.backward, seconds.weight + edge.weight});
  }
  for (int stage = 0; stage < plan.pp; ++stage) {
    StageContent content = stageContent(problem, plan, layout, stage);
    layout.memory.push_back(stageMemory(problem, layout.table, content));
    layout.step.push_back(stepPhase(layout.table, content));
  }
  return layout;
}

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
    int perStage = layout.schedule.chunksPerStage;
    int neighbours = 0;
    for (int other : {position - 1, position + 1})
      neighbours +=
          other >= 0 && other <= last && stageOfChunk(other, plan.pp, perStage, layout.schedule.vShape) != stage;
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
    spreadLayers(problem, plan);
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
