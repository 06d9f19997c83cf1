// The ranges of layers that a stage may hold, their options, and lower bounds from single stages.
#pragma once

#include "planner/search/stage_options.h"

#include <vector>

namespace espalier::planner {

/// The ranges that the stages of a split may hold (any range, or the pinned one), with lower bounds from single
/// stages.
class StageRanges {
public:
  /// All arguments must outlive this object.
  StageRanges(const Problem &problem, StageOptions &stageOptions);

  /// Whether the user pinned the layers of each stage.
  bool arePinned() const { return !totals.empty(); }
  /// The fewest layers of a stage.
  int fewestLayers(int stage) const { return arePinned() ? totals[stage] : leastLayers(problem, config, stage); }
  /// Whether the cost of a stage depends on which layers it has, not only on how many.
  bool areUnlike() const { return !stageOptions.hasOneKind() && !arePinned(); }

  /// Returns the options of a stage with layers first .. first + count - 1, fastest overall first.
  const std::vector<StageOption> &options(int stage, int first, int count);

  /// Returns a lower bound of the step from one stage alone, which waits for its first micro-batch and then processes
  /// all. Infinite if the stage does not fit, or if it exceeds `target` without recompute. Example: 1F1B, 4
  /// micro-batches, a stage of 2 s behind forwards of 1 s: 1 + 4 * 2 = 9 s.
  double stageBound(int stage, int first, int count, double target);

  /// Least seconds of one micro-batch in the layers before each layer.
  const std::vector<double> &workBefore() const { return work; }

  /// Seconds of one micro-batch on a stage outside its layers: embedding, head and sends.
  double edgeSeconds(int stage) const { return edges[stage]; }

private:
  std::vector<LayerRange> pinnedRanges(int stage) const;

  const Problem &problem;
  StageOptions &stageOptions;
  const ParallelConfig &config;
  int perStage;
  std::vector<std::vector<StageOption>> pinned;   // options per stage, where chunks are pinned
  std::vector<int> totals;                        // layers per stage, where chunks are pinned
  std::vector<double> edges, waits;               // per stage; forwards of edges above it
  std::vector<double> forwards = {0}, work = {0}; // of the layers before each, at least
  double leastSeconds = kInfinity;                // of any layer
};

} // namespace espalier::planner
