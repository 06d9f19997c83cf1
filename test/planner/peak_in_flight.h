// The most micro-batches in flight on a stage, counted action by action, for tests.
#pragma once

#include "planner/model/schedule.h"

#include <algorithm>

namespace espalier::planner {

/// Returns the most micro-batches (of any chunk) whose saved values the stage holds at once: +1 at Forward, -1 at
/// Backward, or -1 at Weight if the schedule splits backward.
inline int peakInFlight(const ScheduleTable &table, int stage) {
  ActionKind release = table.splitsBackward ? ActionKind::Weight : ActionKind::Backward;
  int held = 0, peak = 0;
  for (const Action &action : table.stages[stage]) {
    if (action.kind == ActionKind::Forward)
      peak = std::max(peak, ++held);
    else if (action.kind == release)
      --held;
  }
  return peak;
}

} // namespace espalier::planner
