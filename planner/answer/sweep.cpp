#include "planner/answer/sweep.h"

#include "planner/answer/explain.h"

#include <fmt/format.h>

namespace espalier::planner {

double SweepPoint::deviceHoursPerBillionTokens() const {
  constexpr double tokens = 1e9, secondsPerHour = 3600;
  return devices * tokens / plan->prediction.tokensPerSecond / secondsPerHour;
}

namespace {

std::string lineOf(const SweepPoint &point, const std::optional<double> &price) {
  std::string line = fmt::format("{:7}  ", point.devices);
  if (!point.plan)
    return line + "no plan: " + point.reason + "\n";
  const Prediction &prediction = point.plan->prediction;
  constexpr double gigabyte = 1 << 30;
  double hours = point.deviceHoursPerBillionTokens();
  line += fmt::format("{:>17} {:9.0f} {:5.1f}% {:7.2f} {:13.4g}", describeSeconds(prediction),
                      prediction.tokensPerSecond, 100 * prediction.mfu, prediction.peakBytes / gigabyte, hours);
  if (price)
    line += fmt::format(" {:11.4g}", *price * hours);
  constexpr size_t indent = 9; // behind the devices
  return line + "\n" + wrapped(std::string(indent, ' ') + describePlan(*point.plan), indent);
}

} // namespace

std::string printSweep(const Sweep &sweep) {
  const std::optional<double> &price = sweep.pricePerDeviceHour;
  std::string text = fmt::format("{:>7}  {:>17} {:>9} {:>6} {:>7} {:>13}{}\n", "devices", "step", "tokens/s", "MFU",
                                 "GB/rank", "device h/1e9", price ? "   price/1e9" : "");
  const SweepPoint *cheapest = nullptr, *fastest = nullptr;
  for (const SweepPoint &point : sweep.points) {
    text += lineOf(point, price);
    if (!point.plan)
      continue;
    if (!cheapest || point.deviceHoursPerBillionTokens() < cheapest->deviceHoursPerBillionTokens())
      cheapest = &point;
    if (!fastest || point.plan->prediction.stepSeconds < fastest->plan->prediction.stepSeconds)
      fastest = &point;
  }
  if (!cheapest)
    return text;
  return text + fmt::format("{} devices need the fewest device hours, {} take the shortest step\n"
                            "device h/1e9: hours of all devices for a billion tokens{}; {}",
                            cheapest->devices, fastest->devices, price ? ", price/1e9: their price" : "",
                            batchLine(cheapest->plan->plan));
}

} // namespace espalier::planner
