// What the layers of a stage keep: of every kind of layer any number in each class of recompute, so that the stage fits
// and least is repeated. An integer knapsack: bytes are what is kept and the largest transient of any layer.
#pragma once

#include "planner/plan.h"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace espalier::planner {

/// Layers of one kind on a stage and what one of them costs in each class; arrays are indexed by Recompute.
struct RecomputeItem {
  int layers = 1;
  std::array<double, 3> savedBytes{}; ///< of all micro-batches that are held at once
  std::array<double, 3> repeatSeconds{};
  std::array<double, 3> peakBytes{}; ///< transient, while a layer runs
};

/// A choice for each item. When nothing fits, that which needs the least bytes.
struct RecomputeChoice {
  bool fits = false;
  std::vector<std::array<int, 3>> layers; ///< per item, of each class
  double savedBytes = 0, peakBytes = 0, repeatSeconds = 0;
  double leastRepeatSeconds = 0; ///< no choice that fits repeats less; = repeatSeconds where that is proved
};

/// The choice that repeats least among those with savedBytes + peakBytes <= limitBytes. `floorBytes` is the peak of
/// what else runs on the stage; `items` are not empty. After `budget` bounds the best known is returned, with the gap
/// that is left; without any budget, peaks are not told apart.
RecomputeChoice chooseRecompute(std::span<const RecomputeItem> items, double floorBytes, double limitBytes,
                                int64_t budget);

} // namespace espalier::planner
