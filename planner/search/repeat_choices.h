// What the layers of a stage may keep, in one chunk or several: of each kind of layer a number in full and a number of
// selective ones, taken in one order, so that a choice is two numbers for each kind.
#pragma once

#include "planner/model/memory.h"
#include "planner/model/simulate.h"

#include <span>
#include <vector>

namespace espalier::planner {

/// A chunk's layers: first .. first + count - 1.
struct LayerRange {
  int first = 0, count = 0;
};

/// How many layers of one kind repeat work on a stage: the first `full` in their order, then `selective`.
struct RepeatedLayers {
  int full = 0, selective = 0;
};

/// The layers of a stage that are of one kind.
struct LikeLayers {
  int kind = 0;
  std::vector<int> chunks; ///< of each, in the order in which they repeat work
};

/// The layers of a stage by kind, in rising order of kinds. Layers repeat work in the order of their places in their
/// chunks, the first of every chunk before the second of any, so that chunks repeat as evenly as they can.
std::vector<LikeLayers> layersByKind(const CostTable &costs, std::span<const LayerRange> chunks);

/// What each layer of each chunk keeps. `repeated`: of each kind on the stage, in rising order; empty: none do.
std::vector<std::vector<Recompute>> keptLayers(const CostTable &costs, std::span<const LayerRange> chunks,
                                               const std::vector<RepeatedLayers> &repeated);

/// What a stage has for what its layers keep.
struct StageRoom {
  HeldChunks held;                 ///< how many micro-batches of each chunk at its fullest moments
  std::vector<double> ends;        ///< per chunk, what is kept of a micro-batch beside the layers
  double endsPeakBytes = 0;        ///< the largest transient of embedding and head
  double stepBytes = 0;            ///< once per step, in the place of what is kept and of transients
  double fixedBytes = 0;           ///< on the device, under any choice
  double bytes = 0;                ///< that the device has
  double fixedHostBytes = 0;       ///< in host memory, under any choice
  double hostBytes = 0;            ///< a rank's share of host memory
  bool areLayersElsewhere = false; ///< what layers keep is offloaded
};

/// A choice and what it takes.
struct RepeatChoice {
  std::vector<RepeatedLayers> repeated; ///< per kind
  std::vector<ChunkSeconds> seconds;    ///< of the layers of each chunk
};

struct RepeatChoices {
  std::vector<RepeatChoice> list; ///< fastest in all first
  bool fits = false;              ///< that they fit
  bool isComplete = true;         ///< false: with very many kinds, some were left out
};

/// Choices that fit: of any two each is faster in some action of some chunk. `isOne`: only the fastest in all. When
/// nothing fits, that which needs the least share of what there is.
RepeatChoices chooseRepeats(const CostTable &costs, const std::vector<LikeLayers> &kinds, const StageRoom &room,
                            bool isOne);

} // namespace espalier::planner
