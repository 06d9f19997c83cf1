// The costs of all segments of a problem under one config. All splits of the layers are priced from this table.
#pragma once

#include "planner/model/segment.h"

#include <vector>

namespace espalier::planner {

/// The costs of all segments under one config.
struct CostTable {
  SegmentCost embed, head;        ///< zero when the problem has none
  std::vector<SegmentCost> kinds; ///< per Problem::kinds
  std::vector<int> layerKinds;    ///< kind of each layer
  double boundarySeconds = 0;     ///< one transfer of the stream between two stages
  double boundaryBytes = 0;       ///< activation of one micro-batch between two stages
  double inputBytes = 0;          ///< tokens and other inputs of one micro-batch
  double tiedSeconds = 0;         ///< once per step, to sum gradients of tied embeddings
  double microBatches = 1;
  bool layersReadInputs = true;
  bool passesStream = false; ///< layers under Recompute::Full do not keep their received input
  bool isProfiled = true;    ///< every segment has terms for this config
};

/// Evaluates every segment of the problem under `config`.
CostTable buildCostTable(const Problem &problem, const ParallelConfig &config);

} // namespace espalier::planner
