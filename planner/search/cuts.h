// Critical paths as cuts (logic-based Benders decomposition). The graph of actions does not depend on durations, so
// that the critical path of one split is a path of every split: its length is a lower bound, a sum over stages of how
// often their actions are on it. Example: 1F1B on two equal stages of 1 s forward and 2 s backward with 4 micro-batches
// ends after 15 s, by a path of 1 forward and 1 backward on stage 0 and 4 of each on stage 1; a layer that moves to
// stage 1 makes it longer by three of its forwards and backwards, wherever the others lie.
#pragma once

#include "planner/search/stage_options.h"

#include <memory>
#include <span>
#include <vector>

namespace espalier::planner {

/// A path of every split of one config; its length is a lower bound of their steps.
struct Cut {
  std::vector<std::array<double, 3>> counts; ///< per chunk in model order: its forwards, backwards, weight gradients
  std::vector<double> edges;                 ///< per stage: what the path takes beside the layers
  int lastStage = 0;                         ///< whose work once per step ends it
  double seconds = 0;                        ///< step of the split that it was critical for
};

/// Plays splits of one config.
class SplitPlayer {
public:
  /// `options` gives the config, its costs and its schedule, and must outlive this.
  explicit SplitPlayer(const StageOptions &options);

  /// Position in model order of the chunk `chunk` of `stage`.
  int position(int stage, int chunk) const { return positions[stage * perStage + chunk]; }

  /// The critical path when each stage does what its option says; all of it twice as long on the stage `slow`.
  Cut play(std::span<const StageOption *const> stages, int slow = -1);

  /// Seconds of a cut on a stage under an option.
  double seconds(const Cut &cut, int stage, const StageOption &option) const;

  int64_t actions() { return static_cast<int64_t>(schedule().actions()); }

private:
  const OrderedSchedule &schedule(); ///< built when it is first asked for
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
