#include "planner/answer/sweep.h"

#include "planner/answer/explain.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::planner {

double SweepPoint::deviceHoursPerBillionTokens() const {
  constexpr double tokens = 1e9, secondsPerHour = 3600;
  return devices * tokens / plan->prediction.tokensPerSecond / secondsPerHour;
}

namespace {

/// Returns the column of the change, which is `width` wide, and that of the devices.
std::string labelOf(const SweepPoint &point, size_t width) {
  return width > 0 ? fmt::format("{:{}}  {:7}  ", point.change, width, point.devices)
                   : fmt::format("{:7}  ", point.devices);
}

/// Returns the difference to the step of `first`, or nothing in a sweep over devices.
std::string differenceOf(const SweepPoint &point, const SweepPoint &first) {
  if (point.change.empty())
    return "";
  if (&point == &first || !first.plan)
    return fmt::format(" {:>10}", "");
  return fmt::format(" {:>+8.1f} %",
                     100 * (point.plan->prediction.stepSeconds / first.plan->prediction.stepSeconds - 1));
}

std::string lineOf(const SweepPoint &point, const Sweep &sweep, size_t width) {
  std::string line = labelOf(point, width);
  if (!point.plan)
    return line + "no plan: " + point.reason + "\n";
  const Prediction &prediction = point.plan->prediction;
  constexpr double gigabyte = 1 << 30;
  double hours = point.deviceHoursPerBillionTokens();
  line += fmt::format("{:>17}{} {:9.0f} {:5.1f}% {:7.2f} {:13.4g}", describeSeconds(prediction),
                      differenceOf(point, sweep.points.front()), prediction.tokensPerSecond, 100 * prediction.mfu,
                      prediction.peakBytes / gigabyte, hours);
  if (sweep.pricePerDeviceHour)
    line += fmt::format(" {:11.4g}", *sweep.pricePerDeviceHour * hours);
  size_t indent = labelOf(point, width).size(); // behind the devices
  return line + "\n" + wrapped(std::string(indent, ' ') + describePlan(*point.plan), indent);
}

} // namespace

std::string printSweep(const Sweep &sweep) {
  const std::optional<double> &price = sweep.pricePerDeviceHour;
  size_t width = 0;
  for (const SweepPoint &point : sweep.points)
    width = std::max(width, point.change.size());
  std::string text = width > 0 ? fmt::format("{:{}}  ", "change", width) : "";
  text += fmt::format("{:>7}  {:>17}{} {:>9} {:>6} {:>7} {:>13}{}\n", "devices", "step", width > 0 ? " difference" : "",
                      "tokens/s", "MFU", "GB/rank", "device h/1e9", price ? "   price/1e9" : "");
  const SweepPoint *cheapest = nullptr, *fastest = nullptr;
  for (const SweepPoint &point : sweep.points) {
    text += lineOf(point, sweep, width);
    if (!point.plan)
      continue;
    if (!cheapest || point.deviceHoursPerBillionTokens() < cheapest->deviceHoursPerBillionTokens())
      cheapest = &point;
    if (!fastest || point.plan->prediction.stepSeconds < fastest->plan->prediction.stepSeconds)
      fastest = &point;
  }
  if (!cheapest)
    return text;
  if (width == 0)
    text += fmt::format("{} devices need the fewest device hours, {} take the shortest step\n", cheapest->devices,
                        fastest->devices);
  return text + fmt::format("device h/1e9: hours of all devices for a billion tokens{}; {}",
                            price ? ", price/1e9: their price" : "", batchLine(cheapest->plan->plan));
}

} // namespace espalier::planner
