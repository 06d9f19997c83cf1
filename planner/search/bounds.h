// Relaxations of whole configs, before any split of layers is looked at: work is spread over the stages without
// rounding to layers.
#pragma once

#include "planner/model/memory.h"

#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace espalier::planner {

/// What all stages do together under one config.
struct WorkSum {
  double work = 0;             ///< one micro-batch through all layers, with the least that may be recomputed
  double layerWork = 0;        ///< the same without embedding and head
  double traversal = 0;        ///< the same without weight gradients: down through all stages and up again
  double once = 0;             ///< once per step
  double forwardShare = 1;     ///< least share of forward in any segment
  double mostLayerSeconds = 0; ///< of one layer, with the most that may be recomputed
  double boundarySeconds = 0;
  double stateBytes = 0; ///< parameters, gradients and optimizer of all layers
  double savedBytes = 0; ///< least that one micro-batch keeps in all layers
};

WorkSum sumWork(const Problem &problem, const CostTable &table);

/// The same for each of `choices`, without tables, kind by kind; empty where the model has no terms for one.
/// `mostChunks`: of a stage, by the number of stages. The sum of a choice ends where not even so many chunks fit any
/// more.
std::vector<std::optional<WorkSum>> sumWorks(const Problem &problem, std::span<const ParallelConfig> choices,
                                             const std::function<int(int)> &mostChunks);

/// Bytes of the fullest stage, at least: state and what is kept, spread evenly.
double leastBytes(const WorkSum &sum, const Machine &machine, const ParallelConfig &config);

/// A lower bound for all schedules with at most `chunks` chunks on a stage and all splits: no stage is ever idle.
/// Example: 8 micro-batches of 4 s work and 2 s once per step on 2 stages: (8 * 4 + 2) / 2 = 17 s.
double workBound(const WorkSum &sum, const Machine &machine, const ParallelConfig &config, int chunks);

/// A lower bound for all splits under one schedule, which counts what its warm-up leaves idle; infinite where not even
/// bytes spread evenly fit. `chunksAlike`: the chunks of a stage differ by at most one of layers that are all alike.
/// Example: as above under 1F1B, without work once per step: 4 / (1 - (7 / 8)^2) = 17.1 s; equal stages take 18 s.
double relaxedBound(const WorkSum &sum, const Machine &machine, const ParallelConfig &config, bool chunksAlike);

} // namespace espalier::planner
