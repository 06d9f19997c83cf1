// Allocates the values that pass between layer calls and between forward and backward pass: streams, saved values and
// cotangents.
#pragma once

#include "compiler/link/stage_draft.h"

namespace espalier {

/// Allocates and binds the streams, saved values and cotangents of all chunks. The chunks and live ranges of the stage
/// must be complete.
void bindActivations(StageDraft &draft, PlaceBuilder &places);

} // namespace espalier
