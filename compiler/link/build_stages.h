// Builds the stages of a plan that trains or evaluates: the layer calls of each stage, the allocations of their
// regions, and one instruction stream per entry.
#pragma once

#include "compiler/link/stage_draft.h"

namespace espalier {

/// Adds the stages to `out`. All other tables of `out` must be complete.
void buildStages(const StageInputs &inputs, rt::pb::Plan &out);

} // namespace espalier
