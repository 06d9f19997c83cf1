// The work of one pipeline stage: the duration of each action, the work once per step, the number of layers per chunk,
// and the layers that recompute.
#pragma once

#include "planner/model/memory.h"
#include "planner/model/simulate.h"

#include <compare>
#include <span>
#include <vector>

namespace espalier::planner {

/// Returns whether a stage has the embedding and the head, without its layers.
StageContent stageEnds(const ParallelConfig &config, int stage);

/// Returns the time of one segment whose recompute class is `recompute`.
ChunkSeconds segmentSeconds(const SegmentCost &cost, Recompute recompute);

/// Returns the time of the layers of one chunk.
ChunkSeconds chunkSeconds(const CostTable &table, const StageContent &content);

/// Returns the time of a chunk beside its layers: the embedding (first chunk), the head (last chunk), and sends to
/// other stages.
ChunkSeconds edgeSeconds(const CostTable &table, int chunk, const Placement &placement);

/// Returns the work once per step of all chunks of the stage: optimizer and gradient reduction. Hideable collectives
/// overlap with the backward of the last micro-batch. Recompute is not counted there, so that the result does not
/// depend on what layers keep.
PhaseSeconds stepPhase(const CostTable &table, const StageContent &content);

/// Returns the layers of each chunk in model order if stages hold `totals` layers. The chunks of a stage differ by at
/// most one layer, and the earlier chunks have more. Exception: on the first stage of an interleaved schedule the last
/// chunks have more, because its first chunk has the embedding.
std::vector<int> spreadOverChunks(const ParallelConfig &config, const std::vector<int> &totals);

/// Returns the number of layers of chunk `chunk` (an index on its stage) if the stage holds `layers`.
int layersOfChunk(const ParallelConfig &config, int stage, int chunk, int layers);

/// Returns the fewest layers of a stage: one per chunk. With several chunks, those with the embedding or the head may
/// have none.
int leastLayers(const Problem &problem, const ParallelConfig &config, int stage);

/// Returns the fewest layers of all stages together.
int leastLayers(const Problem &problem, const ParallelConfig &config);

/// Returns layers per chunk in model order: as pinned, else spread evenly over stages and over their chunks by
/// spreadOverChunks(). Inner stages get the remainder first. Example: 10 layers on 4 stages are 2, 3, 3, 2.
std::vector<int> evenChunks(const Problem &problem, const ParallelConfig &config);

/// The layers of a chunk: first .. first + count - 1.
struct LayerRange {
  int first = 0, count = 0;
  auto operator<=>(const LayerRange &) const = default;
};

/// The number of recomputing layers of one kind on a stage: the first `full` in their order, then `selective`.
struct RecomputedLayers {
  int full = 0, selective = 0;
};

/// The layers of one kind on a stage.
struct LikeLayers {
  int kind = 0;
  std::vector<int> chunks; ///< chunk of each layer, in recompute order
};

/// Returns the layers of a stage by kind, in ascending order of kinds. Layers recompute by their position in their
/// chunks: the first layer of every chunk comes before the second layer of any. Recompute is thus spread evenly over
/// the chunks. Example: equal layers in chunks of 2 and 1 are on chunks 0, 1, 0.
std::vector<LikeLayers> layersByKind(const CostTable &costs, std::span<const LayerRange> chunks);

/// The content of a stage and of each of its chunks.
struct StageParts {
  StageContent stage;
  std::vector<StageContent> chunks; ///< with the embedding and the head
  std::vector<SavedBytes> saved;    ///< of each chunk; the moments of countedPeaks() multiply it
};

/// Fills `parts` with the content of a stage whose chunks hold the given layers. `recompute` says what each layer of
/// each chunk keeps, and `counted` are the stage's countedPeaks(). Reuses the memory of `parts`.
void assembleStage(const Problem &problem, const ParallelConfig &config, const CostTable &costs, int stage,
                   const StagePeaks &counted, std::span<const LayerRange> chunks,
                   const std::vector<std::vector<Recompute>> &recompute, StageParts &parts);

/// Returns what each layer of each chunk keeps. `recomputed` is indexed by kind on the stage, ascending; empty: no
/// recompute.
std::vector<std::vector<Recompute>> recomputeOfLayers(const CostTable &costs, std::span<const LayerRange> chunks,
                                                      const std::vector<RecomputedLayers> &recomputed);

} // namespace espalier::planner
