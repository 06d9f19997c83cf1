// Changes the terms of a profiled problem to those of other software, which stores and repeats other values.
#pragma once

#include "compiler/import/run/run_config.h"
#include "planner/problem.h"

namespace espalier {

/// Applies the storage of a system (configs/systems) to the terms of all patterns. The default storage changes
/// nothing. Attention that stores its scores becomes two batched products and a softmax; the sequence and the size of
/// a head must then be the dimensions `seq` and `head_dim`.
void applySystem(const SystemStorage &storage, planner::Problem &problem);

/// Keeps the inputs of matrix products that weight gradients read in 8 bits, for a format of 8 or fewer bits.
void keepNarrowInputs(planner::Problem &problem);

} // namespace espalier
