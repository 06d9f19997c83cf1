// Compares the steps of two plans of one run, with the error of the comparison.
#pragma once

#include "planner/price.h"

#include <string>

namespace espalier::planner {

/// The difference of a plan's step to that of a reference plan.
struct Comparison {
  double difference = 0; ///< relative to the reference; above 0: slower
  double error = 0;      ///< bound of an 80 % interval of the ratio of both steps, less one; 0: unknown

  /// Whether the interval contains zero. With an unknown error, whether the difference prints as zero.
  bool isSame() const;
  /// Returns the probability that the plan is faster than the reference. The logarithm of the ratio has a normal
  /// distribution.
  double probabilityFaster() const;
};

/// Compares `plan` with `reference`.
Comparison compare(const ModelError &error, const PricedPlan &reference, const PricedPlan &plan);

/// Formats a comparison: "+2.1 %, same" or "-18 %, faster 97 %", which is the probability that the plan is faster.
std::string describe(const Comparison &comparison);

} // namespace espalier::planner
