#include "planner/answer/compare.h"

#include "planner/model/error.h"

#include <cmath>
#include <fmt/format.h>

namespace espalier::planner {

bool Comparison::isSame() const {
  constexpr double printsAsZero = 0.0005;
  double ratio = 1 + difference;
  return std::max(ratio, 1 / ratio) <= 1 + std::max(error, printsAsZero);
}

double Comparison::probabilityFaster() const {
  if (error <= 0)
    return difference < 0 ? 1 : 0;
  constexpr double quantile = 1.2816; // of 90 %, in standard deviations
  double deviations = quantile * std::log1p(difference) / std::log1p(error);
  return std::erfc(deviations / std::sqrt(2.0)) / 2;
}

Comparison compare(const ModelError &error, const PricedPlan &reference, const PricedPlan &plan) {
  return {plan.prediction.stepSeconds / reference.prediction.stepSeconds - 1,
          comparisonError(error, plan.plan, reference.plan)};
}

std::string describe(const Comparison &comparison) {
  double percent = 100 * comparison.difference;
  std::string text = fmt::format("{:+.{}f} %", percent, std::abs(percent) < 9.95 ? 1 : 0);
  if (comparison.isSame())
    return text + ", same";
  return comparison.error > 0 ? fmt::format("{}, faster {:.0f} %", text, 100 * comparison.probabilityFaster()) : text;
}

} // namespace espalier::planner
