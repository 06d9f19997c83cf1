// Folds repetition in a stage's schedule (runtime/README.md, section 2). Actions that recur for later micro-batches are
// written once, in a block of several rounds. The plan size then does not grow with the number of micro-batches.
#pragma once

#include "format/plan.pb.h"

#include <cstdint>

namespace espalier {

/// Rewrites the actions of an entry of `stage` as blocks with the fewest encoded bytes. Tries advance 1 and advance
/// `stages` and keeps the shorter result, because interleaved schedules process micro-batches in groups of `stages`.
/// The actions that a rank executes stay the same. Reads the stage's chunks and live ranges. A RUN that names `first`
/// buckets, or whose range of calls differs from its neighbours, stays outside of rounds.
void foldRounds(const rt::pb::Stage &stage, uint32_t stages, rt::pb::Actions &actions);

} // namespace espalier
