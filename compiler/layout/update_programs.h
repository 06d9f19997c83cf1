// The update program of each optimizer.
#pragma once

#include "compiler/layout/clip_factors.h"
#include "dialects/exec/dialect.h"

namespace espalier {

/// Adds the update of one bucket to `f`: arguments and results are the rank's parameters, its summed gradient, and the
/// state tensors. The program is that of the bucket's optimizer. `clips` has the
/// factors of QK-clip.
void buildUpdate(RegionFunction &f, exec::BucketOp bucket, exec::OptimizerAttr settings, const ClipFactors &clips);

} // namespace espalier
