// The best plan for each of several numbers of devices, with what it costs, so that a person can choose how many to
// rent.
#pragma once

#include "planner/search.h"

#include <optional>
#include <string>
#include <vector>

namespace espalier::planner {

/// The answer for one number of devices.
struct SweepPoint {
  int devices = 0;
  std::optional<PricedPlan> plan;
  std::string reason; ///< why there is no plan

  /// Hours of all devices for a billion tokens. Requires a plan.
  double deviceHoursPerBillionTokens() const;
};

/// The answers of a sweep, all at one global batch.
struct Sweep {
  std::vector<SweepPoint> points;           ///< by ascending number of devices
  std::optional<double> pricePerDeviceHour; ///< in any currency
};

/// Prints a line for each number of devices: step time with its error, tokens per second, MFU, memory, device hours
/// per billion tokens, their price if it is given, and the plan. Below the table, names the cheapest and the fastest
/// number of devices.
std::string printSweep(const Sweep &sweep);

} // namespace espalier::planner
