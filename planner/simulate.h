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

/// Lower bound of the played time of a schedule with one chunk per stage (`splitsBackward`: ZB-H1,
/// otherwise GPipe or 1F1B): stage s cannot start before the first micro-batch has come down, must
/// do all its work, and its last gradient must go back up: max over s of (m t_s + sum over i < s of
/// t_i). For 1F1B and GPipe with equal stages it is the exact time (m + p - 1) t (Narayanan SC21,
/// section 2.2).
double pipelineLowerBound(const std::vector<ChunkSeconds> &stages, int microBatches, bool splitsBackward);

} // namespace espalier::planner
