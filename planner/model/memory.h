// Bytes on one rank of a stage, by class, from the evaluated segments and what the schedule holds
// at once.
#pragma once

#include "planner/model/cost_table.h"
#include "planner/model/schedule.h"

#include <functional>
#include <vector>

namespace espalier::planner {

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
  double inFlight = 1;                      ///< micro-batches in flight at most, of any chunk
  std::vector<PerRecompute<int>> layers;    ///< how many, of all chunks, by kind
  std::optional<SavedBytes> savedInFlight;  ///< with several chunks: at the fullest moment
  std::vector<ChunkEnds> chunks;            ///< where they share no room (StreamBuffers::ofEachChunk)
  std::optional<Recompute> firstRecomputes; ///< of the first layer; unknown: the one that recomputes most
  bool readsInputs(const CostTable &table) const { return table.layersReadInputs || embed || head; }
  /// Calls visit(kind, recompute, count) for all layers, those that are alike at once.
  template <typename Visit> void visitLayers(Visit visit) const {
    for (size_t kind = 0; kind < layers.size(); ++kind)
      for (Recompute recompute : kRecomputes)
        if (int count = layers[kind][recompute])
          visit(kind, recompute, count);
  }
};

/// Saved values of a stage at its fullest moment, when its chunks keep `chunks` of a micro-batch. Offloaded ones of
/// layers lie elsewhere, so that each of the two has its own moment. Example: with peaks {3, 1} and {2, 2}, chunks that
/// keep 1 and 4 GB have 7 and 10 GB: 10 GB.
SavedBytes savedInFlight(const InFlightPeaks &peaks, const std::vector<SavedBytes> &chunks,
                         bool areActivationsOffloaded);

/// Of a stage whose chunks share no room: one moment, with the most of each chunk.
InFlightPeaks peakOfEachChunk(const InFlightPeaks &peaks);

/// Ends of the chunks of a stage, each with as many micro-batches in flight as it ever has; none where they share room.
/// `passes(chunk)` tells whether the first layer of a chunk of the stage passes its stream on.
std::vector<ChunkEnds> chunkEnds(const Problem &problem, const ParallelConfig &config, int stage,
                                 const InFlightPeaks &apart, const std::function<bool(int)> &passes);

/// What one chunk keeps of one micro-batch: `content` is that of the chunk alone.
SavedBytes savedBytes(const CostTable &table, const StageContent &content);

/// Transient bytes while one segment runs.
double peakBytes(const SegmentCost &cost, Recompute recompute);

/// Saved values are held `inFlight` times, or as `savedInFlight` says; workspace is the largest transient of any one
/// segment; each neighbour costs a buffer for the stream and one for its gradient; what is unsharded under ZeRO has
/// room as UnshardedBuffers says. What is offloaded counts on the host, its buffers on the device; they are never more
/// than what they replace.
StageMemory stageMemory(const Problem &problem, const CostTable &table, const StageContent &content);

} // namespace espalier::planner
