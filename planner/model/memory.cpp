// Sums per class; no class depends on another.
#include "planner/model/memory.h"

#include <algorithm>

namespace espalier::planner {

CostTable buildCostTable(const Problem &problem, const Axes &plan) {
  CostTable table;
  auto costOf = [&](int kind, bool isLayer) {
    bool isFound = true;
    SegmentCost cost = segmentCost(problem, kind, plan, &isFound);
    table.found = table.found && isFound;
    addOffload(cost, problem.machine, plan, isLayer);
    return cost;
  };
  table.embed = costOf(problem.embed, /*isLayer=*/false);
  table.head = costOf(problem.head, /*isLayer=*/false);
  table.kinds.resize(problem.kinds.size());
  std::vector<bool> isCosted(problem.kinds.size());
  for (const LayerRun &run : problem.layers) {
    if (!isCosted[run.kind])
      table.kinds[run.kind] = costOf(run.kind, /*isLayer=*/true);
    isCosted[run.kind] = true;
    table.layerKinds.insert(table.layerKinds.end(), run.count, run.kind);
  }
  std::vector<double> symbols = symbolValues(problem, plan);
  table.boundaryBytes = evaluate(problem.boundaryBytes, symbols) / (plan.sequenceParallel ? plan.tp : 1);
  table.boundarySeconds = boundarySeconds(problem, plan);
  table.inputBytes = evaluate(problem.inputBytes, symbols);
  table.layersReadInputs = problem.layersReadInputs;
  table.microBatches = static_cast<double>(plan.microBatches);
  table.passesStream = plan.slicesInputs();
  table.tiedSeconds = tiedEmbeddingSeconds(problem, plan);
  return table;
}

double peakBytes(const SegmentCost &cost, int recompute) {
  return std::max({cost.forwardPeakBytes[recompute], cost.backwardPeakBytes[recompute], cost.workspaceBytes[recompute],
                   cost.stepPeakBytes});
}

namespace {

void addParameters(StageMemory &memory, const SegmentCost &cost, double count) {
  memory.parameters += count * cost.parameterBytes;
  memory.gradients += count * cost.gradientBytes;
  memory.optimizer += count * cost.optimizerBytes;
}

// Updates are element-wise, so embedding and head pass in pieces as large as a layer.
void moveOptimizer(StageMemory &memory, double buffer) {
  if (buffer <= 0)
    return;
  memory.hostOptimizer = memory.optimizer;
  memory.communication += std::min(memory.optimizer, buffer);
  memory.optimizer = 0;
}

// A gather takes the whole share of a segment, so that embedding and head pass in one piece.
void moveParameters(StageMemory &memory, double buffer) {
  if (buffer <= 0)
    return;
  memory.hostParameters = memory.parameters;
  memory.hostGradients = memory.gradients;
  memory.communication += std::min(memory.parameters + memory.gradients, buffer);
  memory.parameters = memory.gradients = 0;
}

// What layers keep: on the device, or on the host behind a buffer where there is one.
void addSaved(StageMemory &memory, double saved, double buffer) {
  if (buffer <= 0) {
    memory.activations += saved;
    return;
  }
  memory.hostActivations += saved;
  memory.communication += std::min(saved, buffer);
}

} // namespace

SavedBytes savedBytes(const CostTable &table, const StageContent &content) {
  SavedBytes saved;
  for (size_t kind = 0; kind < content.layers.size(); ++kind)
    for (int recompute = 0; recompute < 3; ++recompute)
      if (int count = content.layers[kind][recompute])
        saved.layers += count * table.kinds[kind].savedBytes[recompute];
  saved.ends = (content.readsInputs(table) ? table.inputBytes : 0) + (content.embed ? table.embed.savedBytes[0] : 0) +
               (content.head ? table.head.savedBytes[0] : 0);
  return saved;
}

SavedBytes heldBytes(const HeldChunks &moments, const std::vector<SavedBytes> &chunks, bool areLayersElsewhere) {
  SavedBytes most;
  for (const std::vector<int> &moment : moments) {
    SavedBytes held;
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      held.layers += moment[chunk] * chunks[chunk].layers;
      held.ends += moment[chunk] * chunks[chunk].ends;
    }
    if (areLayersElsewhere)
      most = {std::max(most.layers, held.layers), std::max(most.ends, held.ends)};
    else if (held.layers + held.ends > most.layers + most.ends)
      most = held;
  }
  return most;
}

HeldChunks heldApart(const HeldChunks &moments) {
  std::vector<int> most = moments.front();
  for (const std::vector<int> &moment : moments)
    for (size_t chunk = 0; chunk < most.size(); ++chunk)
      most[chunk] = std::max(most[chunk], moment[chunk]);
  return {most};
}

std::vector<ChunkEnds> chunkEnds(const Problem &problem, const Axes &plan, int stage, const HeldChunks &apart,
                                 const std::function<bool(int)> &passes) {
  std::vector<ChunkEnds> chunks;
  int count = chunksOf(plan.schedule, plan.virtualStages), last = plan.pp * count - 1;
  if (count == 1 || !problem.streamBuffers.ofEachChunk)
    return chunks;
  bool vShape = isVShaped(plan.schedule);
  for (int chunk = 0; chunk < count; ++chunk) {
    int position = modelChunk(stage, chunk, plan.pp, vShape);
    auto isElsewhere = [&](int other) { return stageOfChunk(other, plan.pp, vShape) != stage; };
    chunks.push_back({.inFlight = static_cast<double>(apart.front()[chunk]),
                      .isOuter = position == 0 || position == last,
                      .receives = position > 0 && isElsewhere(position - 1),
                      .sends = position < last && isElsewhere(position + 1),
                      .passesStream = passes(position)});
  }
  return chunks;
}

namespace {

// Whether forward passes on the stream that comes in and keeps it nowhere.
bool passesStream(const CostTable &table, const StageContent &content) {
  if (!table.passesStream || !content.receives)
    return false;
  if (content.first)
    return *content.first == Recompute::Full;
  return std::ranges::any_of(content.layers, [](const auto &counts) { return counts[2] > 0; });
}

// Slots of inputs and of the streams received beyond those of the micro-batches in flight.
double aheadBytes(const StreamBuffers &buffers, const CostTable &table, const StageContent &content) {
  auto ahead = [&](double inFlight) { return std::clamp(table.microBatches - inFlight, 0.0, buffers.ahead); };
  auto streams = [&](double inFlight, bool isPassed) { // one that is passed on is in flight alone
    return table.boundaryBytes * (buffers.holdsPassedStream && isPassed ? 1 + ahead(1) : ahead(inFlight));
  };
  double bytes = 0;
  for (const ChunkEnds &chunk : content.chunks) {
    if (table.layersReadInputs || chunk.isOuter)
      bytes += table.inputBytes * ahead(chunk.inFlight);
    if (chunk.receives)
      bytes += streams(chunk.inFlight, chunk.passesStream);
  }
  if (!content.chunks.empty())
    return bytes;
  if (content.readsInputs(table))
    bytes += table.inputBytes * ahead(content.inFlight);
  if (content.receives)
    bytes += streams(content.inFlight, passesStream(table, content));
  return bytes;
}

// Buffers for streams and cotangents on their way.
double streamCount(const StreamBuffers &buffers, const StageContent &content) {
  auto count = [&](bool receives, bool sends, double inFlight) {
    return (receives ? buffers.receives : 0) + (sends ? buffers.sends + buffers.sendsInFlight * inFlight : 0);
  };
  if (content.chunks.empty())
    return buffers.always + count(content.receives, content.sends, content.inFlight);
  double streams = buffers.always;
  for (const ChunkEnds &chunk : content.chunks)
    streams += count(chunk.receives, chunk.sends, chunk.inFlight);
  // At the turn of a V one chunk hands its stream to the next in place; there is a cotangent between them.
  return streams + (content.chunks.front().sends ? 0 : 1);
}

// Of embedding, head and two layers.
double wholeBytes(const Problem &problem, const CostTable &table, const StageContent &content) {
  int layers = 0;
  double ofEachKind = 0, largest = 0;
  for (size_t kind = 0; kind < content.layers.size(); ++kind) {
    const auto &counts = content.layers[kind];
    int count = counts[0] + counts[1] + counts[2];
    double whole = count > 0 ? table.kinds[kind].wholeBytes : 0;
    layers += count;
    ofEachKind += whole;
    largest = std::max(largest, whole);
  }
  double embed = content.embed ? table.embed.wholeBytes : 0, head = content.head ? table.head.wholeBytes : 0;
  if (problem.wholeRoom == WholeRoom::Largest)
    return std::max({2 * largest, embed, head});
  bool isTied = content.embed && content.head && problem.tiedEmbedding;
  return std::min(layers, 2) * ofEachKind + embed + head - (isTied ? table.head.tiedWholeBytes : 0);
}

} // namespace

StageMemory stageMemory(const Problem &problem, const CostTable &table, const StageContent &content) {
  StageMemory memory;
  double step = 0, optimizerBuffer = 0, parameterBuffer = 0, savedBuffer = 0;
  bool isWithoutLayers = true;
  for (size_t kind = 0; kind < content.layers.size(); ++kind)
    for (int recompute = 0; recompute < 3; ++recompute) {
      int count = content.layers[kind][recompute];
      if (count == 0)
        continue;
      const SegmentCost &cost = table.kinds[kind];
      isWithoutLayers = false;
      addParameters(memory, cost, count);
      step += count * cost.stepBytes;
      memory.workspace = std::max(memory.workspace, peakBytes(cost, recompute));
      optimizerBuffer = std::max(optimizerBuffer, cost.optimizerBufferBytes);
      parameterBuffer = std::max(parameterBuffer, cost.parameterBufferBytes);
      savedBuffer = std::max(savedBuffer, cost.savedBufferBytes[recompute]);
    }
  if (isWithoutLayers) // pieces are as large as those of the other stages
    for (const SegmentCost &cost : table.kinds)
      optimizerBuffer = std::max(optimizerBuffer, cost.optimizerBufferBytes);
  for (const auto &[present, cost] : {std::pair(content.embed, &table.embed), std::pair(content.head, &table.head)})
    if (present) {
      addParameters(memory, *cost, 1);
      step += cost->stepBytes;
      memory.workspace = std::max(memory.workspace, peakBytes(*cost, 0));
      parameterBuffer = std::max(parameterBuffer, cost->parameterBufferBytes);
    }
  if (content.embed && content.head && problem.tiedEmbedding) {
    memory.parameters -= table.head.tiedParameterBytes;
    memory.gradients -= table.head.tiedGradientBytes;
    memory.optimizer -= table.head.tiedOptimizerBytes;
  }
  const StreamBuffers &buffers = problem.streamBuffers;
  memory.communication = table.boundaryBytes * streamCount(buffers, content) + wholeBytes(problem, table, content);
  SavedBytes held = content.held ? *content.held : savedBytes(table, content);
  if (!content.held)
    held = {held.layers * content.inFlight, held.ends * content.inFlight};
  memory.activations = held.ends + aheadBytes(buffers, table, content);
  addSaved(memory, held.layers, savedBuffer);
  moveOptimizer(memory, optimizerBuffer);
  moveParameters(memory, parameterBuffer);
  memory.workspace += std::max(0.0, step - memory.activations - memory.workspace); // where these have been
  memory.reserved = problem.machine.reservedBytes;
  return memory;
}

} // namespace espalier::planner
