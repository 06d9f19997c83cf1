// One training step of a stage as the run plan's actions: the planner's table with communication and the step's end.
#pragma once

#include "planner/schedule.h"

#include "runtime/plan.pb.h"

namespace espalier {

/// Appends the actions of `stage` to `out.schedule` and `out.evaluation`. A micro-batch uses slot
/// micro_batch mod `slots`. Sends are started when their value exists and awaited before their buffer is written
/// again; receives are awaited before use: with both started before they are awaited, no order of stages deadlocks.
void expandSchedule(const planner::ScheduleTable &table, int stage, uint32_t slots, rt::pb::Stage &out);

} // namespace espalier
