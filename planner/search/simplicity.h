// Which of two equally fast plans an engineer would rather run.
#pragma once

#include "planner/problem.h"

#include <compare>

namespace espalier::planner {

/// A place in the order of simplicity, compared field by field; the lesser is simpler. Example: tp 8 and pp 8 with ZeRO
/// 1 are two techniques, as tp 8 with ZeRO 3 is, which has the higher ZeRO stage.
struct Simplicity {
  /// How many of these: tensor, pipeline, context and expert parallelism, ZeRO 2 or 3, each kind of offloading. ZeRO 1
  /// changes the update alone and is none, and recompute changes no layout.
  int techniques = 0;
  int contextRanks = 1;
  bool splitsTensorsOverHosts = false;
  int zero = 0;
  int offloads = 0;
  bool hasOtherSchedule = false; ///< than 1F1B with one chunk per stage
  bool recomputes = false;
  auto operator<=>(const Simplicity &) const = default;
};

Simplicity simplicityOf(const ParallelConfig &config, const Machine &machine, bool recomputes);
Simplicity simplicityOf(const Plan &plan, const Machine &machine);

/// Which axes a plan has beside dp, whether it shards parameters and whether it offloads. Plans of one family are
/// variants of each other: their sizes, schedules and recompute differ.
int familyOf(const ParallelConfig &config);

} // namespace espalier::planner
