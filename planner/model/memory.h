// Bytes on one rank of a stage, by class, from the evaluated segments and what the schedule holds
// at once.
#pragma once

#include "planner/model/schedule.h"
#include "planner/model/segment.h"

#include <array>
#include <functional>
#include <vector>

namespace espalier::planner {

/// The segments of a problem evaluated under one choice of axes, micro-batch, ZeRO and sequence
/// parallelism.
struct CostTable {
  SegmentCost embed, head;        ///< zero when the problem has none
  std::vector<SegmentCost> kinds; ///< per Problem::kinds
  std::vector<int> layerKinds;    ///< kind of each layer
  double boundarySeconds = 0, boundaryBytes = 0;
  double inputBytes = 0;
  double tiedSeconds = 0;
  double microBatches = 1;
  bool layersReadInputs = true;
  bool passesStream = false; ///< layers under Recompute::Full do not keep the stream that comes in
  bool found = true;         ///< every segment had terms for this pattern
};

/// Evaluates all segments for the axes of `plan` (its stages are not looked at).
CostTable buildCostTable(const Problem &problem, const Axes &plan);

/// Saved values: of the layers, which may be offloaded, and of what stands at the ends: inputs, embedding and head.
struct SavedBytes {
  double layers = 0, ends = 0;
};

/// The ends of one of several chunks of a stage.
struct ChunkEnds {
  double inFlight = 1;
  bool isOuter = false; ///< has the embedding or the head
  bool receives = false, sends = false;
  bool passesStream = false; ///< its first layer does not keep the stream that came in
};

/// What lies on one stage: per kind of layer, how many keep what.
struct StageContent {
  bool embed = false, head = false, receives = false, sends = false;
  double inFlight = 1;                    ///< micro-batches whose saved values are held at once, of any chunk
  std::vector<std::array<int, 3>> layers; ///< of all chunks: [kind][Recompute] -> count
  std::optional<SavedBytes> held;         ///< with several chunks: what they hold at once
  std::vector<ChunkEnds> chunks;          ///< where they share no room (StreamBuffers::ofEachChunk)
  std::optional<Recompute> first;         ///< of the first layer; unknown: the one that repeats most
  bool readsInputs(const CostTable &table) const { return table.layersReadInputs || embed || head; }
};

/// What a stage holds of its chunks at its fullest moment, when each keeps `chunks` of a micro-batch. Layers that are
/// offloaded lie elsewhere, so that each of the two has its own moment. Example: at moments {3, 1} and {2, 2} of
/// micro-batches in flight, chunks that keep 1 and 4 GB hold 7 and 10 GB: 10 GB.
SavedBytes heldBytes(const HeldChunks &moments, const std::vector<SavedBytes> &chunks, bool areLayersElsewhere);

/// The moments of a stage whose chunks share no room: one, with the most of each chunk.
HeldChunks heldApart(const HeldChunks &moments);

/// Ends of the chunks of a stage, each with as many micro-batches in flight as it ever has; none where they share room.
/// `passes` tells whether the first layer of a chunk passes its stream on, by the chunk's position in the model.
std::vector<ChunkEnds> chunkEnds(const Problem &problem, const Axes &plan, int stage, const HeldChunks &apart,
                                 const std::function<bool(int)> &passes);

/// What one chunk keeps of one micro-batch: `content` is that of the chunk alone.
SavedBytes savedBytes(const CostTable &table, const StageContent &content);

/// Transient bytes while one segment runs.
double peakBytes(const SegmentCost &cost, int recompute);

/// Saved values are held `inFlight` times, or as `held` says; workspace is the largest transient of any one segment;
/// each neighbour costs a buffer for the stream and one for its gradient; what ZeRO holds whole has
/// room as WholeRoom says. What is offloaded counts on the host, its buffers on the device; they are never more than
/// what they replace.
StageMemory stageMemory(const Problem &problem, const CostTable &table, const StageContent &content);

} // namespace espalier::planner
