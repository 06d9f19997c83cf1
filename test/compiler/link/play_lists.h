// What a set of lists must hold, checked by going through them: each function gives the first fault in words, or
// nothing.
#pragma once

#include "compiler/link/expand_schedule.h"

#include <string>

namespace espalier {

/// As runtime/README.md writes lists: one line per RUN, `WAIT | RUN | START`. The first line has no RUN, nor has the
/// last where something is waited for at the end. `isNumbered`: names end in their chunk.
std::string printList(const StageList &list, bool isNumbered);

/// The RUNs of a list.
std::vector<planner::Action> runsOf(const StageList &list);

/// Goes through all lists on devices that run one transfer at a time in order of issue, a send until its receive ends.
std::string playInOrderOfIssue(const planner::ScheduleTable &table, const std::vector<StageList> &lists);

/// The n-th send on a line (streams, cotangents) from stage to stage is the n-th receive there.
std::string compareLines(const planner::ScheduleTable &table, const std::vector<StageList> &lists);

/// Goes through one list: what is read is there, what is written is free, nothing stays open, each flight once; and
/// RUNs hold as many micro-batches of each lifetime as it says.
std::string checkBuffers(const StageList &list, int microBatches);

} // namespace espalier
