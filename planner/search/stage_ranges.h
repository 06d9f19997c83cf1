// The ranges of layers that the stages of a split may hold, their options, and lower bounds by one stage alone.
#pragma once

#include "planner/search/stage_options.h"

#include <limits>
#include <vector>

namespace espalier::planner {

/// What the stages of a split may hold, any range of layers or what the user pins, and lower bounds by one stage alone.
class StageRanges {
public:
  /// All must outlive this.
  StageRanges(const Problem &problem, StageOptions &stageOptions);

  bool arePinned() const { return !totals.empty(); }
  int fewestLayers(int stage) const { return arePinned() ? totals[stage] : leastLayers(problem, config, stage); }
  /// Whether it matters which layers a stage has, not only how many.
  bool areUnlike() const { return !stageOptions.hasOneKind() && !arePinned(); }

  /// Options of a stage with layers first .. first + count - 1; the fastest in all first.
  const std::vector<StageOption> &options(int stage, int first, int count);

  /// A lower bound of the step by one stage alone: it waits for its first micro-batch, and works on all. Infinite where
  /// the stage does not fit, or takes longer than `target` with nothing recomputed. Example: 1F1B, 4 micro-batches, a
  /// stage of 2 s each behind forwards of 1 s: 1 + 4 * 2 = 9 s.
  double stageBound(int stage, int first, int count, double target);

  /// Seconds of one micro-batch in the layers before each, at least.
  const std::vector<double> &workBefore() const { return work; }

  /// Seconds of one micro-batch that a stage takes beside its layers: embedding, head and sends.
  double edgeSeconds(int stage) const { return edges[stage]; }

private:
  std::vector<LayerRange> pinnedRanges(int stage) const;

  const Problem &problem;
  StageOptions &stageOptions;
  const ParallelConfig &config;
  int perStage;
  std::vector<std::vector<StageOption>> pinned;                  // options per stage, where chunks are pinned
  std::vector<int> totals;                                       // layers per stage, where chunks are pinned
  std::vector<double> edges, waits;                              // per stage; forwards of edges above it
  std::vector<double> forwards = {0}, work = {0};                // of the layers before each, at least
  double leastSeconds = std::numeric_limits<double>::infinity(); // of any layer
};

} // namespace espalier::planner
