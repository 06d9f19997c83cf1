// Checks properties of instruction streams by simulation. Each function returns the first fault, or an empty string.
#pragma once

#include "compiler/link/expand_schedule.h"

#include <string>

namespace espalier {

/// Prints a stream as in runtime/README.md: one line per RUN, `WAIT | RUN | START`. The first line has no RUN, and
/// neither has the last line if it only waits. If `isNumbered`, names end with their chunk.
std::string printList(const StageList &list, bool isNumbered);

/// Returns the RUNs of a stream.
std::vector<planner::Action> runsOf(const StageList &list);

/// Simulates all streams on devices that run one transfer at a time in order of issue. A send lasts until its receive
/// ends.
std::string playInOrderOfIssue(const planner::ScheduleTable &table, const std::vector<StageList> &lists);

/// Checks that the n-th send on a line (streams, cotangents) between two stages matches the n-th receive.
std::string compareLines(const planner::ScheduleTable &table, const std::vector<StageList> &lists);

/// Simulates one stream. Checks that values that are read are ready, that buffers that are written are free, that each
/// transfer occurs once and is waited for, and that RUNs hold at most as many micro-batches of each lifetime as it has
/// slots.
std::string checkBuffers(const StageList &list, int microBatches);

} // namespace espalier
