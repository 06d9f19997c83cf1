// The end of a training step as functions over a segment's regions: sum gradients, their squared norm, AdamW.
#pragma once

#include "compiler/pipeline/segment_layout.h"

namespace espalier {

/// Adds `@<segment>.reduce_gradients`, `@<segment>.squared_norm` and `@<segment>.optimizer` for each segment. Tensors
/// are flat, [element], the whole local part or, with the attribute `exec.share = ["dp"]`, the rank's ZeRO-1 share of
/// it. A tied parameter held by several stages is summed over them (`stages` on dist.all_reduce).
void buildOptimizer(mlir::ModuleOp module, const std::vector<SegmentLayout> &segments, const RunConfig &run,
                    const planner::Plan &plan);

} // namespace espalier
