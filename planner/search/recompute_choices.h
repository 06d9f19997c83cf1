// Chooses what the layers of a stage keep: the Pareto set of choices that fit. Layers of a kind recompute in a fixed
// order, so that a choice is two numbers per kind: the layers that recompute in full, and selectively. Example: 3
// equal layers have 10 choices. With 5 GB free, a layer keeps 4 GB under none, 2 GB under selective and 1 GB under
// full. {full 3, selective 0} and {full 1, selective 2} fit. The latter is faster and uses all 5 GB.
#pragma once

#include "planner/model/stage.h"

#include <vector>

namespace espalier::planner {

/// The memory of a stage that is available for kept values.
struct StageRoom {
  InFlightPeaks inFlight;               ///< multiples of what each chunk keeps, at the peaks (countedPeaks())
  std::vector<LivePeaks> live;          ///< per chunk, the counts of keptBytes()
  std::vector<double> ends;             ///< per chunk, bytes kept outside the layers, with the counts of `live`
  double endsPeakBytes = 0;             ///< largest transient of embedding and head
  double stepBytes = 0;                 ///< once per step; reuses the memory of kept values and transients
  double fixedBytes = 0;                ///< device bytes that do not depend on the choice
  double bytes = 0;                     ///< capacity of the device
  double fixedHostBytes = 0;            ///< host bytes that do not depend on the choice
  double hostBytes = 0;                 ///< a rank's share of host memory
  bool areActivationsOffloaded = false; ///< what layers keep is offloaded
};

/// A choice and its times.
struct RecomputeChoice {
  std::vector<RecomputedLayers> recomputed; ///< per kind
  std::vector<ChunkSeconds> seconds;        ///< of the layers of each chunk
};

/// The Pareto set, or the choice that needs the least memory.
struct RecomputeChoices {
  std::vector<RecomputeChoice> list; ///< fastest overall first
  bool fits = false;                 ///< whether the choices fit
  bool isComplete = true;            ///< false: some choices were dropped because of many kinds or layers
  int64_t visits = 0;                ///< visited chunks: a measure of the work
};

/// Returns the Pareto set of choices that fit: between any two, each is faster in some action. With `onlyFastest`,
/// only the choice that is fastest overall. If nothing fits, the choice that needs the smallest share of memory.
RecomputeChoices chooseRecompute(const CostTable &costs, const std::vector<LikeLayers> &kinds, const StageRoom &room,
                                 bool onlyFastest);

} // namespace espalier::planner
