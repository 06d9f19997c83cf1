// Defines which of two equally fast plans is simpler to run.
#pragma once

#include "planner/problem.h"

#include <compare>

namespace espalier::planner {

/// The rank of a plan in the order of simplicity, compared field by field; less is simpler. Example: tp 8 and pp 8
/// with ZeRO 1 count two techniques. tp 8 with ZeRO 3 counts two as well, but shards parameters. The first five fields
/// are the layout.
struct Simplicity {
  /// Number of techniques: tensor, pipeline, context and expert parallelism, ZeRO 2 or 3, each kind of offloading.
  /// ZeRO 1 does not count because it changes only the update. Recompute does not count because it changes no layout.
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
  /// Returns the layout alone. Plans of one layout differ in ZeRO 0 or 1, schedule and recompute.
  Simplicity layout() const { return {techniques, contextRanks, splitsTensorsOverHosts, sharding, offloads}; }
};

/// Returns the simplicity of a config, or of a plan.
Simplicity simplicityOf(const ParallelConfig &config, const Machine &machine, bool recomputes);
Simplicity simplicityOf(const Plan &plan, const Machine &machine);

/// Returns the error of the ratio of two plans' steps. It is symmetric.
double comparisonError(const ModelError &error, const ParallelConfig &one, const ParallelConfig &other);

/// Returns the family of a plan: its axes beside dp, parameter sharding and offloading. Plans of one family differ in
/// sizes, schedule and recompute.
int familyOf(const ParallelConfig &config);

} // namespace espalier::planner
