#include "planner/answer/measured.h"

#include "planner/price.h"

#include <algorithm>
#include <cmath>

namespace espalier::planner {

void scaleRates(Machine &machine, double factor) {
  for (double *rate : {&machine.matmulEfficiency, &machine.attentionEfficiency, &machine.memoryBytesPerSecond,
                       &machine.link.bytesPerSecond, &machine.network.bytesPerSecond, &machine.host.bytesPerSecond,
                       &machine.sendBytesPerSecond})
    *rate *= factor;
}

std::optional<double> rateFactor(const Problem &problem, const Plan &plan, double seconds) {
  auto stepAt = [&](double factor) {
    Problem scaled = problem;
    scaleRates(scaled.machine, factor);
    return pricePlan(scaled, plan).prediction.stepSeconds;
  };
  double low = 1.0 / 16, high = 16;
  if (stepAt(high) > seconds || stepAt(low) < seconds)
    return std::nullopt;
  constexpr int halvings = 40; // to 1e-11
  for (int i = 0; i < halvings; ++i) {
    double middle = std::sqrt(low * high);
    (stepAt(middle) > seconds ? low : high) = middle;
  }
  return high;
}

void useMeasured(Problem &problem, double factor) {
  scaleRates(problem.machine, factor);
  problem.error.time = std::max(problem.error.comparison, problem.error.family);
  problem.error.content = {};
}

} // namespace espalier::planner
