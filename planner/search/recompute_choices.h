// What the layers of a stage keep: the Pareto set of choices that fit. Layers of a kind recompute in one fixed order,
// so that a choice is two numbers for each kind: how many recompute in full, how many selectively. Example: of 3 like
// layers there are 10 choices; with 5 GB free, 4 GB kept by a layer under none, 2 GB under selective and 1 GB under
// full, {full 3, selective 0} fits and {full 1, selective 2} does, which is faster and keeps the whole 5 GB.
#pragma once

#include "planner/model/stage.h"

#include <vector>

namespace espalier::planner {

/// What a stage has for what its layers keep.
struct StageRoom {
  InFlightPeaks inFlight;               ///< micro-batches of each chunk, at its fullest moments
  std::vector<double> ends;             ///< per chunk, what is kept of a micro-batch beside the layers
  double endsPeakBytes = 0;             ///< the largest transient of embedding and head
  double stepBytes = 0;                 ///< once per step, in the place of what is kept and of transients
  double fixedBytes = 0;                ///< on the device, under any choice
  double bytes = 0;                     ///< that the device has
  double fixedHostBytes = 0;            ///< in host memory, under any choice
  double hostBytes = 0;                 ///< a rank's share of host memory
  bool areActivationsOffloaded = false; ///< what layers keep is offloaded
};

/// A choice and its times.
struct RecomputeChoice {
  std::vector<RecomputedLayers> recomputed; ///< per kind
  std::vector<ChunkSeconds> seconds;        ///< of the layers of each chunk
};

struct RecomputeChoices {
  std::vector<RecomputeChoice> list; ///< fastest in all first
  bool fits = false;                 ///< that they fit
  bool isComplete = true;            ///< false: with very many kinds or layers, some were left out
  int64_t visits = 0;                ///< of chunks, to sum what they keep: a measure of the work
};

/// The Pareto set of choices that fit: each is faster than any other in some action of some chunk. `onlyFastest`: the
/// fastest in all alone. When nothing fits, the choice that needs the least share of memory.
RecomputeChoices chooseRecompute(const CostTable &costs, const std::vector<LikeLayers> &kinds, const StageRoom &room,
                                 bool onlyFastest);

} // namespace espalier::planner
