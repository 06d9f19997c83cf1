// The update program of each optimizer.
#pragma once

#include "compiler/import/run/run_config.h"
#include "compiler/layout/region_function.h"
#include "compiler/layout/segment_layout.h"

namespace espalier {

/// Adds the update of one bucket to `f`: arguments and results are the rank's parameters, its summed gradient, the f32
/// master copy if `master`, and the state tensors. The program is that of the bucket's optimizer.
void buildUpdate(RegionFunction &f, const SegmentBucket &bucket, bool master, const OptimizerConfig &settings);

} // namespace espalier
