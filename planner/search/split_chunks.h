// Stages with several choices of what their layers keep (chunk_options.h): how many layers each stage gets, laid on its
// chunks by rule, or chunks that the user pinned.
#pragma once

#include "planner/search/chunk_options.h"
#include "planner/search/split_layers.h"

namespace espalier::planner {

/// The best split and what it repeats, as bestSplit(). Layers that are all alike: any number on each stage, spread over
/// its chunks by rule. Unlike layers, and chunks that are pinned: see split_ranges.h.
SplitResult bestChunks(const Problem &problem, StageOptions &options, double limitSeconds, int64_t budget);

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
