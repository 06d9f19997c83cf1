// Layers laid on the stages of given axes, with what they keep.
#pragma once

#include "planner/search/chunk_options.h"

#include <vector>

namespace espalier::planner {

/// What stages hold and need.
struct LaidStages {
  std::vector<StagePlan> stages;        ///< per chunk in model order
  std::vector<double> bytes, hostBytes; ///< per stage
};

/// Lays `counts` (layers per chunk, in model order) on the stages of the options' axes, with what they keep: where
/// there are several choices what `repeated` says for each stage, otherwise what fits and is fastest, or needs the
/// least.
LaidStages layStages(const Problem &problem, StageOptions &options, const std::vector<int> &counts,
                     const std::vector<std::vector<RepeatedLayers>> &repeated = {});

/// Layers spread evenly over stages, one more first for those between the ends, and over their chunks by rule: per
/// chunk in model order.
std::vector<int> evenChunks(const Problem &problem, const Plan &axes);

} // namespace espalier::planner
