// What ranks decide together outside of a step.
#pragma once

#include "runtime/abi.h"
#include "runtime/executor.h"

namespace espalier::rt {

/// Whether `mine` is true on any rank: the same answer on all, once all have asked. Uses the scalars, which a step sets
/// anew. Throws RankStopped after an abort.
inline bool isTrueOnAny(Executor &executor, bool mine) {
  Scalars scalars{};
  scalars[LossSum] = mine ? 1 : 0;
  executor.setScalars(scalars);
  executor.sumScalars();
  return executor.scalars()[LossSum] > 0;
}

} // namespace espalier::rt
