// Plays a schedule table in max-plus algebra: an action starts when its stage is free and its
// inputs are there. The order per stage is fixed, so the result is monotone in every duration.
#pragma once

#include "planner/schedule.h"

#include <vector>

namespace espalier::planner {

/// Seconds of one micro-batch on one chunk (in model order), sends included: a send occupies its
/// sender. `weight` is part of Backward where the schedule does not split it off.
struct ChunkSeconds {
  double forward = 0, backward = 0, weight = 0;
  double total() const { return forward + backward + weight; }
};

/// One executed action, for traces.
struct PlayedAction {
  Action action;
  double startSeconds = 0, endSeconds = 0;
};

/// What happened. `finished` is false when stages wait for each other (a broken table).
struct Played {
  bool finished = false;
  double seconds = 0;                           ///< end of the last action
  std::vector<double> busySeconds;              ///< per stage
  std::vector<double> endSeconds;               ///< per stage, end of its last action
  std::vector<std::vector<PlayedAction>> trace; ///< per stage, when asked for
};

/// Plays the table; chunks[i] belongs to model chunk i.
Played play(const ScheduleTable &table, const std::vector<ChunkSeconds> &chunks, bool wantTrace = false);

} // namespace espalier::planner
