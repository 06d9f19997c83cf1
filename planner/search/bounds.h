// Bounds of whole choices of axes, before any split of layers is looked at: all work spread evenly over the stages.
#pragma once

#include "planner/model/memory.h"

#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace espalier::planner {

/// What all stages do together under one choice of axes.
struct WorkSum {
  double work = 0;             ///< one micro-batch through all layers, with the least that may be repeated
  double layerWork = 0;        ///< the same without embedding and head
  double passing = 0;          ///< the same without weight gradients: it goes down through all stages and up again
  double once = 0;             ///< once per step
  double forwardShare = 1;     ///< least share of forward in any segment
  double mostLayerSeconds = 0; ///< of one layer, with the most that may be repeated
  double boundarySeconds = 0;
  double stateBytes = 0; ///< parameters, gradients and optimizer of all layers
  double savedBytes = 0; ///< least that one micro-batch keeps in all layers
};

WorkSum sumWork(const Problem &problem, const CostTable &table);

/// The same for each choice of axes, without tables; empty where the model has no terms for one. Kind by kind, so that
/// the terms of a kind are at hand for all choices.
/// `mostChunks`: of a stage, by the number of stages. A choice under which not even so many chunks fit is not summed to
/// its end: what there is shows that.
std::vector<std::optional<WorkSum>> sumWorks(const Problem &problem, std::span<const Axes> choices,
                                             const std::function<int(int)> &mostChunks);

/// Bytes of the fullest stage, at least: state and what is kept, spread evenly.
double evenBytes(const WorkSum &sum, const Machine &machine, const Axes &axes);

/// A bound for all schedules with at most `chunks` chunks on a stage and all splits: every stage works all the time.
double evenBound(const WorkSum &sum, const Machine &machine, const Axes &axes, int chunks);

/// Transfers of one micro-batch between stages, forward and backward.
double sentSeconds(const WorkSum &sum, const Axes &axes, int chunks);

/// A bound for all splits: work spread without rounding to layers; infinite where not even bytes spread evenly fit.
/// `chunksAlike`: the chunks of a stage differ by at most one of layers that are all alike.
double relaxedBound(const WorkSum &sum, const Machine &machine, const Axes &axes, bool chunksAlike);

} // namespace espalier::planner
