// Defines which of two equally fast plans is simpler to run.
#pragma once

#include "planner/price.h"

#include <compare>
#include <string>
#include <vector>

namespace espalier::planner {

/// The rank of a plan in the order of simplicity, compared field by field; less is simpler. Example: tp 8 and pp 8
/// with ZeRO 1 count two techniques. tp 8 with ZeRO 3 counts two as well, but shards parameters.
struct Simplicity {
  /// Number of techniques: tensor, pipeline, context and expert parallelism, ZeRO 2 or 3, each kind of offloading.
  /// Three extents count like a technique: more than `kFewStages` stages, a bubble above `kSmallBubble`, and a memory
  /// that is filled above `kFullMemory` of its limit. ZeRO 1 does not count because it changes only the update.
  /// Recompute does not count because it changes no layout.
  int techniques = 0;
  int contextRanks = 1;
  bool splitsTensorsOverHosts = false;
  int sharding = 0; ///< ZeRO stage above 1, or 0
  int offloads = 0;
  int zero = 0;
  bool isHybrid = false;         ///< ZeRO shards over a part of dp
  bool hasOtherSchedule = false; ///< other than 1F1B with one chunk per stage
  bool recomputes = false;
  auto operator<=>(const Simplicity &) const = default;
};

inline constexpr int kFewStages = 8;
inline constexpr double kSmallBubble = 0.15, kFullMemory = 0.97;

/// Returns the simplicity of a priced plan. That of a config is the least of its plans: without recompute, and with a
/// small bubble and free memory.
Simplicity simplicityOf(const ParallelConfig &config, const Machine &machine);
Simplicity simplicityOf(const PricedPlan &plan, const Machine &machine);

/// Returns the techniques and extents that make a plan less simple, as words: "tensor parallelism", "12 stages".
std::vector<std::string> complexitiesOf(const PricedPlan &plan);

/// Returns the family of a plan: its axes beside dp, parameter sharding and offloading. Plans of one family differ in
/// sizes, schedule and recompute.
int familyOf(const ParallelConfig &config);

} // namespace espalier::planner
