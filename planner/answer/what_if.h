// Compares the present plan with the plan on other devices, at the same global batch.
#pragma once

#include "planner/search.h"

#include <optional>
#include <string>

namespace espalier::planner {

/// Two plans of one run on two machines. Idle devices are those that the new plan leaves out, because no split over
/// all of them keeps the global batch. Idle devices count in the cost.
struct WhatIf {
  PricedPlan before, after;
  std::optional<PricedPlan> bestBefore, bestAfter; ///< the planner's choice, if the plan above is pinned
  std::string machineBefore, machineAfter;         ///< names
  int devicesBefore = 0, devicesAfter = 0;         ///< including idle ones
  int idleDevices = 0;

  /// Returns the same comparison for the best plans; empty if neither plan is pinned.
  std::optional<WhatIf> ofBest() const;

  /// New over old step time: above 1 is slower.
  double stepRatio() const;
  /// New over old token rate: above 1 is faster.
  double tokenRateRatio() const;
  /// New over old device seconds per token. Above 1 is dearer if both devices cost the same.
  double costRatio() const;
};

/// Prints two lines of plans and one line of ratios. For pinned plans prints the same for the best plans.
std::string printWhatIf(const WhatIf &answer);

} // namespace espalier::planner
