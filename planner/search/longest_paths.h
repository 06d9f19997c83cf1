// Bounds of a played schedule with one chunk per stage (GPipe, 1F1B, ZB-H1): the order of actions is fixed, so every
// chain of actions that wait for each other is a lower bound, linear in the durations. The chains here turn at one
// stage s: forwards down to it, from its first forward to its last backward, backwards up from it to the stage that
// ends last. On the way they may go down to the last stage and back up before the first backward of s, after its last
// forward, or both; the last matters where micro-batches are few.
#pragma once

#include "planner/model/simulate.h"

namespace espalier::planner {

/// The chains of one schedule; seconds throughout.
class LongestPaths {
public:
  LongestPaths(Schedule schedule, int stages, int64_t microBatches);

  /// One micro-batch down and up through a stage. Weight gradients that are split off wait for nobody.
  double up(const ChunkSeconds &seconds) const { return seconds.backward + (splitsBackward ? 0 : seconds.weight); }
  double passing(const ChunkSeconds &seconds) const { return seconds.forward + up(seconds); }

  /// From the first forward of `stage` to its last backward; `below` is what one micro-batch takes down and up through
  /// all stages behind it. Grows when a layer moves from below to the stage.
  double turning(int stage, const ChunkSeconds &seconds, double below) const;

  /// What a stage has left after its last backward: split weight gradients and the work once per step.
  double ending(int stage, const ChunkSeconds &seconds, double stepSeconds) const;

private:
  Schedule schedule;
  int stages;
  double microBatches;
  bool splitsBackward;
};

} // namespace espalier::planner
