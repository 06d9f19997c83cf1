// Lower bounds of configs without a split of the layers. Work is spread over the stages without rounding to layers.
#pragma once

#include "planner/model/memory.h"

#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace espalier::planner {

/// The total work of all stages under one config.
struct WorkSum {
  double work = 0;             ///< one micro-batch through all layers, with the least possible recompute
  double layerWork = 0;        ///< the same without embedding and head
  double traversal = 0;        ///< same without weight gradients: down through all stages and up again
  double once = 0;             ///< once per step
  double forwardShare = 1;     ///< least share of forward in any segment
  double mostLayerSeconds = 0; ///< of one layer, with the most recompute
  double boundarySeconds = 0;
  double stateBytes = 0; ///< parameters, gradients and optimizer of all layers
  double savedBytes = 0; ///< least bytes that all layers keep of one micro-batch
};

/// Sums the work from a cost table. Layers recompute as `recompute` says, or with the least values of any class.
WorkSum sumWork(const Problem &problem, const CostTable &table, const std::optional<Recompute> &recompute = {});

/// Sums the work of each of `choices` without cost tables. Empty if the problem has no terms for a
/// choice. `mostChunks` maps the number of stages to the most chunks of a stage. Stops the sum of a choice early when
/// not even that many chunks fit.
std::vector<std::optional<WorkSum>> sumWorks(const Problem &problem, std::span<const ParallelConfig> choices,
                                             const std::function<int(int)> &mostChunks);

/// Returns a lower bound of the bytes of the fullest stage: state and kept values, spread evenly.
double leastBytes(const WorkSum &sum, const Machine &machine, const ParallelConfig &config);

/// A lower bound over all splits and all schedules with at most `chunks` chunks per stage. It assumes that no stage
/// idles.
/// Example: 8 micro-batches of 4 s work and 2 s once per step on 2 stages: (8 * 4 + 2) / 2 = 17 s.
double workBound(const WorkSum &sum, const Machine &machine, const ParallelConfig &config, int chunks);

/// A lower bound over all splits under one schedule that includes the idle time of its warm-up. Infinite if not even
/// evenly spread bytes fit. `chunksAlike`: all layers are equal and the chunks of a stage differ by at most one layer.
/// Example: as above under 1F1B, without work once per step: 4 / (1 - (7 / 8)^2) = 17.1 s; equal stages take 18 s.
double relaxedBound(const WorkSum &sum, const Machine &machine, const ParallelConfig &config, bool chunksAlike);

} // namespace espalier::planner
