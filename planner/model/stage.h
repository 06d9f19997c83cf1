// What one stage of a pipeline does: its chunks in each action, what it does once per step, how many layers its chunks
// have, and which of them recompute.
#pragma once

#include "planner/model/memory.h"
#include "planner/model/simulate.h"

#include <compare>
#include <span>
#include <vector>

namespace espalier::planner {

/// What lies on a stage beside its layers: embedding, head and neighbours.
StageContent stageEnds(const ParallelConfig &config, int stage);

/// Time of one segment of which a class of recompute keeps what backward reads.
ChunkSeconds segmentSeconds(const SegmentCost &cost, Recompute recompute);

/// Time of the layers of one chunk.
ChunkSeconds chunkSeconds(const CostTable &table, const StageContent &content);

/// What a chunk costs beside its layers: the embedding (first chunk), the head (last), and its
/// sends to chunks on other stages.
ChunkSeconds edgeSeconds(const CostTable &table, int chunk, int stages, int chunksPerStage, bool vShape);

/// Time once per step, all chunks of the stage: optimizer and gradient reduction. What can hide
/// runs beside the backward of the last micro-batch (recompute not counted, so that it stays
/// independent of what is kept).
PhaseSeconds stepPhase(const CostTable &table, const StageContent &content);

/// Layers of each chunk in model order where stages hold `totals`. The chunks of a stage differ by at most one layer;
/// the first ones have more, but on the first stage of an interleaved schedule, whose first chunk has the embedding,
/// the last.
std::vector<int> spreadOverChunks(const ParallelConfig &config, const std::vector<int> &totals);

/// The layers of one of the chunks of a stage, in its own order, when the stage holds `layers`.
int layersOfChunk(const ParallelConfig &config, int stage, int chunk, int layers);

/// Fewest layers of a stage: one for each chunk, but of several for those that hold the embedding or the head.
int leastLayers(const Problem &problem, const ParallelConfig &config, int stage);

/// The same of all stages together.
int leastLayers(const Problem &problem, const ParallelConfig &config);

/// Layers per chunk in model order as they are pinned; else spread evenly over stages, one more first for those between
/// the ends, and over their chunks by spreadOverChunks(). Example: 10 layers on 4 stages are 2, 3, 3, 2.
std::vector<int> evenChunks(const Problem &problem, const ParallelConfig &config);

/// A chunk's layers: first .. first + count - 1.
struct LayerRange {
  int first = 0, count = 0;
  auto operator<=>(const LayerRange &) const = default;
};

/// How many layers of one kind recompute on a stage: the first `full` in their order, then `selective`.
struct RecomputedLayers {
  int full = 0, selective = 0;
};

/// The layers of a stage that are of one kind.
struct LikeLayers {
  int kind = 0;
  std::vector<int> chunks; ///< of each, in the order in which they recompute
};

/// The layers of a stage by kind, in rising order of kinds. Layers recompute in the order of their places in their
/// chunks, the first of every chunk before the second of any, so that chunks recompute as evenly as they can. Example:
/// of chunks of 2 and 1 like layers, they are those on chunk 0, 1, 0.
std::vector<LikeLayers> layersByKind(const CostTable &costs, std::span<const LayerRange> chunks);

/// What each layer of each chunk keeps. `recomputed`: of each kind on the stage, in rising order; empty: none do.
std::vector<std::vector<Recompute>> recomputeOfLayers(const CostTable &costs, std::span<const LayerRange> chunks,
                                                      const std::vector<RecomputedLayers> &recomputed);

} // namespace espalier::planner
