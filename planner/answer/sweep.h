// The best plan for each of several numbers of devices or changed machines, with what it costs, so that a person can
// choose what to rent.
#pragma once

#include "planner/search.h"

#include <optional>
#include <string>
#include <vector>

namespace espalier::planner {

/// The answer for one number of devices, or for one change of the machine.
struct SweepPoint {
  int devices = 0;
  std::string change; ///< "link=2x"; "now" for the unchanged machine; empty in a sweep over devices
  std::optional<PricedPlan> plan;
  std::string reason; ///< why there is no plan

  /// Hours of all devices for a billion tokens. Requires a plan.
  double deviceHoursPerBillionTokens() const;
};

/// The answers of a sweep, all at one global batch.
struct Sweep {
  std::vector<SweepPoint> points;           ///< the first one has no change
  std::optional<double> pricePerDeviceHour; ///< in any currency
};

/// Prints a line for each number of devices: step time with its error, tokens per second, MFU, memory, device hours
/// per billion tokens, their price if it is given, and the plan. Changes of the machine have a column, and another one
/// with the difference to the first point's step. Below the table of a sweep over devices, names the cheapest and the
/// fastest number of devices.
std::string printSweep(const Sweep &sweep);

} // namespace espalier::planner
