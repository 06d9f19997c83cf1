// Bytes on one rank of a stage, by class. The inputs are the evaluated segments and the micro-batches in flight.
#pragma once

#include "planner/model/cost_table.h"
#include "planner/model/schedule.h"

#include <functional>
#include <vector>

namespace espalier::planner {

/// Bytes kept for backward. `layers` may be offloaded. `ends` are kept by inputs, embedding and head.
struct SavedBytes {
  double layers = 0, ends = 0;
};

/// The ends of chunks that share buffers: one chunk, or all chunks of a stage (StreamBuffers::ofEachChunk).
struct ChunkEnds {
  double inFlight = 1;  ///< most micro-batches in flight
  bool isOuter = false; ///< has the embedding or the head
  bool receives = false, sends = false;
  double turnGradients = 0;  ///< at the turn of a V: gradients between this chunk and the next one
  bool passesStream = false; ///< its first layer does not keep its received input
};

/// The segments of one stage. `layers` counts the layers by kind and recompute class.
struct StageContent {
  bool embed = false, head = false;
  std::vector<PerRecompute<int>> layers; ///< number of layers in all chunks, by kind
  SavedBytes savedInFlight;              ///< at the peak
  std::vector<ChunkEnds> ends;
  /// Calls visit(kind, recompute, count) once for each group of equal layers.
  template <typename Visit> void visitLayers(Visit visit) const {
    for (size_t kind = 0; kind < layers.size(); ++kind)
      for (Recompute recompute : kRecomputes)
        if (int count = layers[kind][recompute])
          visit(kind, recompute, count);
  }
};

/// Returns the peak saved bytes of a stage whose chunks keep `chunks` bytes per micro-batch. Offloaded values of
/// layers lie in host memory, so that `layers` and `ends` then have separate peaks. Example: with peaks {3, 1} and {2,
/// 2}, chunks that keep 1 and 4 GB need 7 and 10 GB: 10 GB.
SavedBytes savedInFlight(const InFlightPeaks &peaks, const std::vector<SavedBytes> &chunks,
                         bool areActivationsOffloaded);

/// Returns the bytes that a segment keeps if `live` micro-batches are in flight.
double keptBytes(const SegmentCost &cost, Recompute recompute, const LivePeaks &live);

/// Returns the peaks by which keptBytes() counts each chunk, and the moments by which their sums are multiplied. If
/// chunks have separate buffers, each chunk counts its own peaks, and the moments are 1. Otherwise each chunk counts
/// one micro-batch, and the moments say how many are in flight.
StagePeaks countedPeaks(const StreamBuffers &buffers, const StagePeaks &peaks);

/// Returns the ends of each chunk of the stage, or one entry if its chunks share buffers. `counted` are the stage's
/// countedPeaks(). `passes(chunk)` tells whether the chunk's first layer passes its received input on without keeping
/// it.
std::vector<ChunkEnds> chunkEnds(const Problem &problem, const ParallelConfig &config, int stage,
                                 const StagePeaks &counted, const std::function<bool(int)> &passes);

/// Returns the bytes that one chunk keeps if `live` micro-batches are in flight. `content` describes this chunk alone.
SavedBytes savedBytes(const CostTable &table, const StageContent &content, const LivePeaks &live);

/// Returns the transient bytes while one segment runs.
double peakBytes(const SegmentCost &cost, Recompute recompute);

/// Returns the used share of a rank's memory, on the device or in host memory, whichever is larger.
double memoryShare(const Machine &machine, double bytes, double hostBytes);

/// Returns the bytes of a stage by class. Workspace is the largest transient of any segment. Each neighbour costs a
/// buffer for the activation and one for its gradient. Unsharded ZeRO buffers follow UnshardedBuffers. Offloaded state
/// counts on the host, and its staging buffers on the device. Staging buffers never exceed the bytes that they replace.
StageMemory stageMemory(const Problem &problem, const CostTable &table, const StageContent &content);

} // namespace espalier::planner
