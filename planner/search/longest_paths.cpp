#include "planner/search/longest_paths.h"

#include <algorithm>

namespace espalier::planner {

LongestPaths::LongestPaths(Schedule schedule, int stages, int64_t microBatches)
    : schedule(schedule), stages(stages), microBatches(static_cast<double>(microBatches)),
      splitsBackward(planner::splitsBackward(schedule)) {}

double LongestPaths::turning(int stage, const ChunkSeconds &seconds, double below) const {
  double forward = seconds.forward, backward = up(seconds), m = microBatches;
  if (schedule == Schedule::GPipe) // the last forward goes down, the first backward comes up
    return m * (forward + backward) + below;
  // 1F1B runs k forwards before the first backward and k backwards after the last forward; between these two it runs
  // `between` more pairs, where there are so many micro-batches.
  double k = std::min<double>(m, stages - stage), between = m - k;
  double down = k * forward, back = k * backward;                       // waiting for nobody
  double downThrough = forward + below, backThrough = backward + below; // by way of the last stage
  // ZB-H1 lags by `stage` weight gradients: those before the last backward, and before the last forward.
  double weights = splitsBackward ? std::max(0.0, m - 1 - stage) * seconds.weight : 0;
  double early = splitsBackward ? std::max(0.0, m - stages) * seconds.weight : 0;
  double longest = std::max({down + back + weights, downThrough + back + weights, down + backThrough + early});
  if (between > 0)
    longest = std::max(longest, downThrough + backThrough + early);
  return longest + between * (forward + backward);
}

double LongestPaths::ending(int stage, const ChunkSeconds &seconds, double stepSeconds) const {
  return stepSeconds + (splitsBackward ? std::min(microBatches, stage + 1.0) * seconds.weight : 0);
}

} // namespace espalier::planner
