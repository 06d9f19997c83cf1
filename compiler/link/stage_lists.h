// Writes the instruction streams of a stage: its expanded schedule with layer calls, slots and buckets filled in, plus
// the start and the end of an entry.
#pragma once

#include "compiler/link/list_context.h"

namespace espalier {

/// Appends the training entry to `stage`. The calls, chunks and live ranges of `stage` must be complete: one chunk per
/// chunk of `list`, then the chunk of the call `step`.
void addTraining(const ListInputs &inputs, const StageList &list, rt::pb::Stage &stage);
/// Appends the evaluation entry to `stage`, under the same conditions.
void addEvaluation(const ListInputs &inputs, const StageList &list, rt::pb::Stage &stage);

} // namespace espalier
