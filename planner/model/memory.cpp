// Sums bytes per class. The classes are independent of each other.
#include "planner/model/memory.h"

#include <algorithm>
#include <numeric>

namespace espalier::planner {

double peakBytes(const SegmentCost &cost, Recompute recompute) {
  return std::max({cost.forwardPeakBytes[recompute], cost.backwardPeakBytes[recompute], cost.workspaceBytes[recompute],
                   cost.stepPeakBytes});
}

double memoryShare(const Machine &machine, double bytes, double hostBytes) {
  return std::max(bytes / machine.memoryBytes, hostBytes > 0 ? hostBytes / machine.hostShareBytes() : 0);
}

namespace {

void addParameters(StageMemory &memory, const SegmentCost &cost, double count) {
  memory.parameters += count * cost.parameterBytes;
  memory.gradients += count * cost.gradientBytes;
  memory.optimizer += count * cost.optimizerBytes;
}

// Updates are element-wise, so that embedding and head are transferred in pieces of the size of a layer.
void moveOptimizer(StageMemory &memory, double buffer) {
  if (buffer <= 0)
    return;
  memory.hostOptimizer = memory.optimizer;
  memory.communication += std::min(memory.optimizer, buffer);
  memory.optimizer = 0;
}

// An all-gather needs the whole shard of a segment, so that embedding and head are transferred in one piece.
void moveParameters(StageMemory &memory, double buffer) {
  if (buffer <= 0)
    return;
  memory.hostParameters = memory.parameters;
  memory.hostGradients = memory.gradients;
  memory.communication += std::min(memory.parameters + memory.gradients, buffer);
  memory.parameters = memory.gradients = 0;
}

// Adds what layers keep: on the device, or in host memory with a staging buffer on the device.
void addSaved(StageMemory &memory, double saved, double buffer) {
  if (buffer <= 0) {
    memory.activations += saved;
    return;
  }
  memory.hostActivations += saved;
  memory.communication += std::min(saved, buffer);
}

} // namespace

double keptBytes(const SegmentCost &cost, Recompute recompute, const LivePeaks &live) {
  return live.untilBackward * (cost.savedBytes[recompute] - cost.weightBytes[recompute]) +
         live.untilWeight * cost.weightBytes[recompute] + live.fromBackward * cost.passedBytes[recompute];
}

SavedBytes savedBytes(const CostTable &table, const StageContent &content, const LivePeaks &live) {
  SavedBytes saved;
  content.visitLayers([&](size_t kind, Recompute recompute, int count) {
    saved.layers += count * keptBytes(table.kinds[kind], recompute, live);
  });
  saved.ends = (table.layersReadInputs || content.embed || content.head ? live.untilWeight * table.inputBytes : 0) +
               (content.embed ? keptBytes(table.embed, Recompute::None, live) : 0) +
               (content.head ? keptBytes(table.head, Recompute::None, live) : 0);
  return saved;
}

StagePeaks countedPeaks(const StreamBuffers &buffers, const StagePeaks &peaks) {
  size_t chunks = peaks.chunks.size();
  if (buffers.ofEachChunk)
    return {{std::vector<int>(chunks, 1)}, peaks.chunks};
  return {peaks.moments, std::vector<LivePeaks>(chunks)};
}

SavedBytes savedInFlight(const InFlightPeaks &peaks, const std::vector<SavedBytes> &chunks,
                         bool areActivationsOffloaded) {
  SavedBytes most;
  for (const std::vector<int> &inFlight : peaks) {
    SavedBytes saved;
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      saved.layers += inFlight[chunk] * chunks[chunk].layers;
      saved.ends += inFlight[chunk] * chunks[chunk].ends;
    }
    if (areActivationsOffloaded)
      most = {std::max(most.layers, saved.layers), std::max(most.ends, saved.ends)};
    else if (saved.layers + saved.ends > most.layers + most.ends)
      most = saved;
  }
  return most;
}

std::vector<ChunkEnds> chunkEnds(const Problem &problem, const ParallelConfig &config, int stage,
                                 const StagePeaks &counted, const std::function<bool(int)> &passes) {
  Placement chunkPlaces = placement(config);
  int count = chunkPlaces.chunksPerStage, last = chunkPlaces.chunks() - 1;
  if (count == 1 || !problem.streamBuffers.ofEachChunk) {
    int inFlight = counted.chunks.front().untilWeight;
    for (const std::vector<int> &moment : counted.moments)
      inFlight = std::max(inFlight, std::reduce(moment.begin(), moment.end()));
    bool isWrapped = count > 1 && config.pp > 1; // both neighbours send to some chunk
    return {{.inFlight = static_cast<double>(inFlight),
             .isOuter = stage == 0 || stage == chunkPlaces.headStage(),
             .receives = stage > 0 || isWrapped,
             .sends = stage < config.pp - 1 || isWrapped,
             .passesStream = passes(0)}};
  }
  std::vector<ChunkEnds> chunks;
  for (int chunk = 0; chunk < count; ++chunk) {
    int position = chunkPlaces.modelChunk(stage, chunk);
    auto isElsewhere = [&](int other) { return chunkPlaces.stageOf(other) != stage; };
    bool isTurn = position < last && !isElsewhere(position + 1);
    chunks.push_back({.inFlight = static_cast<double>(counted.chunks[chunk].untilWeight),
                      .isOuter = position == 0 || position == last,
                      .receives = position > 0 && isElsewhere(position - 1),
                      .sends = position < last && !isTurn,
                      .turnGradients = isTurn ? static_cast<double>(counted.chunks[chunk].gradients) : 0,
                      .passesStream = passes(chunk)});
  }
  return chunks;
}

namespace {

// Bytes of received inputs and activations beyond those of the micro-batches in flight.
double aheadBytes(const StreamBuffers &buffers, const CostTable &table, const StageContent &content) {
  auto ahead = [&](double inFlight) { return std::clamp(table.microBatches - inFlight, 0.0, buffers.ahead); };
  double bytes = 0;
  for (const ChunkEnds &chunk : content.ends) {
    if (table.layersReadInputs || chunk.isOuter)
      bytes += table.inputBytes * ahead(chunk.inFlight);
    bool isOneHeld = buffers.holdsPassedStream && chunk.passesStream; // not kept: only one activation is in flight
    if (chunk.receives)
      bytes += table.boundaryBytes * (isOneHeld ? 1 + ahead(1) : ahead(chunk.inFlight));
  }
  return bytes;
}

// Number of buffers for activations and gradients in transfer.
double streamCount(const StreamBuffers &buffers, const StageContent &content) {
  double streams = buffers.always;
  for (const ChunkEnds &chunk : content.ends) // at the turn of a V a chunk passes its activation on in place
    streams += (chunk.receives ? buffers.receives : 0) +
               (chunk.sends ? buffers.sends + buffers.sendsInFlight * chunk.inFlight : 0) + chunk.turnGradients;
  return streams;
}

// Returns the bytes of unsharded parameters and gradients of embedding, head and two layers.
double unshardedBytes(const Problem &problem, const CostTable &table, const StageContent &content) {
  int layers = 0;
  double ofEachKind = 0, largest = 0;
  for (size_t kind = 0; kind < content.layers.size(); ++kind) {
    int count = std::reduce(content.layers[kind].begin(), content.layers[kind].end());
    double unsharded = count > 0 ? table.kinds[kind].unshardedBytes : 0;
    layers += count;
    ofEachKind += unsharded;
    largest = std::max(largest, unsharded);
  }
  double embed = content.embed ? table.embed.unshardedBytes : 0, head = content.head ? table.head.unshardedBytes : 0;
  if (problem.unshardedBuffers == UnshardedBuffers::Shared)
    return std::max({2 * largest, embed, head});
  bool isTied = content.embed && content.head && problem.tiedEmbedding;
  return std::min(layers, 2) * ofEachKind + embed + head - (isTied ? table.head.tiedUnshardedBytes : 0);
}

} // namespace

StageMemory stageMemory(const Problem &problem, const CostTable &table, const StageContent &content) {
  StageMemory memory;
  double step = 0, optimizerBuffer = 0, parameterBuffer = 0, savedBuffer = 0;
  bool isWithoutLayers = true;
  content.visitLayers([&](size_t kind, Recompute recompute, int count) {
    const SegmentCost &cost = table.kinds[kind];
    isWithoutLayers = false;
    addParameters(memory, cost, count);
    step += count * cost.stepBytes;
    memory.workspace = std::max(memory.workspace, peakBytes(cost, recompute));
    optimizerBuffer = std::max(optimizerBuffer, cost.optimizerBufferBytes);
    parameterBuffer = std::max(parameterBuffer, cost.parameterBufferBytes);
    savedBuffer = std::max(savedBuffer, cost.savedBufferBytes[recompute]);
  });
  if (isWithoutLayers) // pieces are as large as those of the other stages
    for (const SegmentCost &cost : table.kinds)
      optimizerBuffer = std::max(optimizerBuffer, cost.optimizerBufferBytes);
  for (const auto &[present, cost] : {std::pair(content.embed, &table.embed), std::pair(content.head, &table.head)})
    if (present) {
      addParameters(memory, *cost, 1);
      step += cost->stepBytes;
      memory.workspace = std::max(memory.workspace, peakBytes(*cost, Recompute::None));
      parameterBuffer = std::max(parameterBuffer, cost->parameterBufferBytes);
    }
  if (content.embed && content.head && problem.tiedEmbedding) {
    memory.parameters -= table.head.tiedParameterBytes;
    memory.gradients -= table.head.tiedGradientBytes;
    memory.optimizer -= table.head.tiedOptimizerBytes;
  }
  const StreamBuffers &buffers = problem.streamBuffers;
  memory.communication = table.boundaryBytes * streamCount(buffers, content) + unshardedBytes(problem, table, content);
  memory.activations = content.savedInFlight.ends + aheadBytes(buffers, table, content);
  addSaved(memory, content.savedInFlight.layers, savedBuffer);
  moveOptimizer(memory, optimizerBuffer);
  moveParameters(memory, parameterBuffer);
  memory.workspace +=
      std::max(0.0, step - memory.activations - memory.workspace); // reuses the memory of activations and workspace
  memory.reserved = problem.machine.reservedBytes;
  return memory;
}

} // namespace espalier::planner
