// The end of a training step as functions over a segment's buckets: their squared norm and AdamW.
#pragma once

#include "compiler/pipeline/segment_layout.h"

namespace espalier {

/// Adds `@<segment>.norm` and `@<segment>.update` for each segment. Tensors are flat, [element], a whole bucket or,
/// with the attribute `exec.share = ["dp"]`, the rank's ZeRO-1 share of it; `model.name` is the bucket's. Adds
/// `@step.scalars`, without a body: its attribute `exec.max_grad_norm` (0: no clipping) says what becomes of the sums.
void buildOptimizer(mlir::ModuleOp module, const std::vector<SegmentLayout> &segments, const RunConfig &run);

} // namespace espalier
