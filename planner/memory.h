// Bytes on one rank of a stage, by class, from the evaluated segments and what the schedule holds
// at once.
#pragma once

#include "planner/cost.h"

#include <array>
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
  bool found = true;                        ///< every segment had terms for this pattern
  std::optional<Recompute> commonRecompute; ///< what all layers keep, where that is given
};

/// Evaluates all segments for the axes of `plan` (its stages are not looked at).
CostTable buildCostTable(const Problem &problem, const Plan &plan);

/// What all layers keep, where a pin or the plan says so.
std::optional<Recompute> commonRecompute(const Problem &problem, const Plan &plan);

/// Adds what offloading under `plan` costs to a segment that was evaluated without. Only layers give up what they keep;
/// embedding and head run right before or behind their backward, or keep little.
void addOffload(SegmentCost &cost, const Machine &machine, const Plan &plan, bool isLayer);

/// What lies on one stage: per kind of layer, how many keep what; the same for every chunk of the
/// stage.
struct StageContent {
  bool embed = false, head = false, receives = false, sends = false;
  int chunks = 1;                         ///< chunks on the stage
  double inFlight = 1;                    ///< chunks whose saved values are held at once
  double headInFlight = 1;                ///< micro-batches whose saved values of the head are held at once
  std::vector<std::array<int, 3>> layers; ///< of one chunk: [kind][Recompute] -> count
  std::optional<double> chunkSavedBytes;  ///< of the layers of the widest chunk, where `layers` are those of all chunks
};

/// Transient bytes while one segment runs.
double peakBytes(const SegmentCost &cost, int recompute);

/// Saved values are held `inFlight` times; workspace is the largest transient of any one segment;
/// each neighbour costs a buffer for the stream and one for its gradient; ZeRO-3 holds two gathered
/// layers. What is offloaded counts on the host, its buffers on the device; they are never more than what they replace.
StageMemory stageMemory(const Problem &problem, const CostTable &table, const StageContent &content);

/// Micro-batches whose saved values of the head its stage holds at once, when the stage holds `inFlight` chunks: with
/// interleaved chunks the last one runs backward right after forward, unless all forwards come first.
double headsInFlight(Schedule schedule, double inFlight, int stages, int microBatches);

/// Chunks whose saved values stage `stage` holds at once: GPipe m, 1F1B min(m, p - s), ZB-H1 min(m,
/// p), interleaved its warm-up and one; ZB-V is read from its table.
double chunksInFlight(Schedule schedule, int stage, int stages, int microBatches, int virtualStages);

} // namespace espalier::planner
