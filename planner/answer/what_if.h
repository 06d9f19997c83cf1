// The same run on other devices: the present plan beside the new one, at the same global batch.
#pragma once

#include "planner/search.h"

#include <optional>
#include <string>

namespace espalier::planner {

/// Two plans of one run on two machines. Idle devices are those of the new machine that the plan leaves out, because
/// no split of all of them keeps the global batch; they cost all the same.
struct WhatIf {
  PricedPlan before, after;
  std::optional<PricedPlan> bestBefore, bestAfter; ///< the planner's choice, where the plan above is pinned
  std::string machineBefore, machineAfter;         ///< names
  int devicesBefore = 0, devicesAfter = 0;         ///< idle ones included
  int idleDevices = 0;

  /// The same question for the best plans; empty where neither plan is pinned.
  std::optional<WhatIf> ofBest() const;

  /// New over old: above 1 is slower.
  double stepRatio() const;
  /// New over old: above 1 is faster.
  double tokenRateRatio() const;
  /// New over old device seconds of a token: above 1 is dearer, where both devices cost the same.
  double costRatio() const;
};

/// Two lines of plans and one of ratios; for pinned plans then the same for the best plans.
std::string printWhatIf(const WhatIf &answer);

} // namespace espalier::planner
