// All segments of a problem evaluated under one config: what every split of its layers is priced with.
#pragma once

#include "planner/model/segment.h"

#include <vector>

namespace espalier::planner {

struct CostTable {
  SegmentCost embed, head;        ///< zero when the problem has none
  std::vector<SegmentCost> kinds; ///< per Problem::kinds
  std::vector<int> layerKinds;    ///< kind of each layer
  double boundarySeconds = 0;     ///< one transfer of the stream between two stages
  double boundaryBytes = 0;       ///< the stream of one micro-batch
  double inputBytes = 0;          ///< of one micro-batch: tokens and the like
  double tiedSeconds = 0;         ///< once per step, to sum gradients of tied embeddings
  double microBatches = 1;
  bool layersReadInputs = true;
  bool passesStream = false; ///< layers under Recompute::Full do not keep the stream that comes in
  bool isProfiled = true;    ///< every segment has terms for this config
};

CostTable buildCostTable(const Problem &problem, const ParallelConfig &config);

} // namespace espalier::planner
