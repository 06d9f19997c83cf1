// Repetition in a stage's list (runtime/README.md, section 2): what comes again for later micro-batches is said once,
// in a block of several rounds, so that the size of a plan does not grow with the number of micro-batches.
#pragma once

#include "runtime/plan.pb.h"

#include <cstdint>

namespace espalier {

/// Brings the actions of an entry of `stage` into blocks: those with fewest bytes, with advance 1 or with advance
/// `stages`, whatever of the two is shorter (interleaved schedules go through the stages' micro-batches in groups).
/// What a rank executes stays the same. Reads the stage's chunks and lifetimes; a RUN that names `first` buckets, or
/// one that is cut otherwise than its neighbours, has no like and stays outside of rounds by that.
void foldRounds(const rt::pb::Stage &stage, uint32_t stages, rt::pb::Actions &actions);

} // namespace espalier
