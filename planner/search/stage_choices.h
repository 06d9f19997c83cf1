// What the stages of one choice of axes may have, and what it takes: any range of layers, with each choice of what is
// worth keeping of them.
#pragma once

#include "planner/search/cuts.h"

#include <limits>
#include <vector>

namespace espalier::planner {

/// Remembers what it computed.
class StageChoices {
public:
  /// `stageOptions` gives the axes and their costs; all must outlive this.
  StageChoices(const Problem &problem, StageOptions &stageOptions, const SplitPlayer &player);

  bool isGiven() const { return !totals.empty(); }
  int fewest(int stage) const { return isGiven() ? totals[stage] : leastLayers(problem, axes, stage); }
  /// Whether it matters which layers a stage has, not only how many.
  bool areUnlike() const { return !stageOptions.hasOneKind() && !isGiven(); }
  /// False when with very many kinds some choices were left out.
  bool isComplete() const { return stageOptions.isComplete(); }

  /// What is worth keeping of a stage with layers first .. first + count - 1; the fastest in all first.
  const std::vector<StageOption> &of(int stage, int first, int count);

  /// What a stage takes alone, whatever the others have: it waits for its first micro-batch, and works on all. Infinite
  /// where it does not fit, or takes longer than `target` with nothing repeated.
  double alone(int stage, int first, int count, double target = std::numeric_limits<double>::max());

  /// Seconds of one micro-batch in the layers before each, at least.
  const std::vector<double> &workBefore() const { return work; }

private:
  std::vector<LayerRange> rangesOf(int stage) const;

  const Problem &problem;
  StageOptions &stageOptions;
  const Axes &axes;
  int perStage;
  const SplitPlayer &player;
  std::vector<std::vector<StageOption>> given;                   // per stage, where chunks are pinned
  std::vector<int> totals;                                       // per stage, where chunks are pinned
  std::vector<double> forwards = {0}, work = {0};                // of the layers before each, at least
  double leastSeconds = std::numeric_limits<double>::infinity(); // of any layer
};

} // namespace espalier::planner
