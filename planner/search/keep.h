// What the layers of a stage may keep, in one chunk or several: of each kind of layer a number in full and a number of
// selective ones, taken in one order, so that a choice is two numbers for each kind.
#pragma once

#include "planner/model/stage.h"

#include <vector>

namespace espalier::planner {

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
