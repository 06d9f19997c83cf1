// Critical paths as cuts (logic-based Benders decomposition). The graph of actions does not depend on durations, so
// that the critical path of one split is a path of every split. Its length is a lower bound: a sum over stages of the
// actions on the path. Example: 1F1B with 4 micro-batches on two equal stages of 1 s forward and 2 s backward ends
// after 15 s. Its path has 1 forward and 1 backward on stage 0, and 4 of each on stage 1. Moving a layer to stage 1
// lengthens the path by three of the layer's forwards and backwards, wherever the other layers are.
#pragma once

#include "planner/search/stage_options.h"

#include <memory>
#include <span>
#include <vector>

namespace espalier::planner {

/// A path of every split of one config. Its length is a lower bound of their steps.
struct Cut {
  std::vector<std::array<double, 3>> counts; ///< per chunk in model order: its forwards, backwards, weight gradients
  std::vector<double> edges;                 ///< per stage: seconds of the path outside the layers
  int lastStage = 0;                         ///< the path ends with this stage's work once per step
  double seconds = 0;                        ///< step of the split for which it was critical
};

/// Simulates splits of one config.
class SplitPlayer {
public:
  /// `options` provides the config, costs and schedule, and must outlive the player.
  explicit SplitPlayer(const StageOptions &options);

  /// Position in model order of the chunk `chunk` of `stage`.
  int position(int stage, int chunk) const { return positions[stage * perStage + chunk]; }

  /// Returns the critical path under the given option of each stage. Stage `slow` takes twice as long.
  Cut play(std::span<const StageOption *const> stages, int slow = -1);

  /// Returns the seconds of a cut on a stage under an option.
  double seconds(const Cut &cut, int stage, const StageOption &option) const;

  /// Number of actions of one simulation.
  int64_t actions() { return static_cast<int64_t>(schedule().actions()); }

private:
  const OrderedSchedule &schedule(); ///< built on first use
  Cut cutOf(const CriticalPath &path) const;

  const StageOptions &options;
  const ParallelConfig &config;
  int perStage;
  std::vector<int> positions; // [stage * perStage + chunk]
  bool splitsWeight;
  std::vector<ChunkSeconds> edges; // per chunk in model order
  std::shared_ptr<const OrderedSchedule> ordered;
};

} // namespace espalier::planner
