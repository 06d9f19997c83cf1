// Which gradients a subprogram adds to.
#pragma once

#include "runtime/plan.pb.h"

#include <compare>
#include <cstdint>
#include <vector>

namespace espalier {

/// A parameter of a bucket, by the value that its gradient is.
struct GradientTerm {
  uint32_t bucket = 0, value = 0;
  auto operator<=>(const GradientTerm &) const = default;
};

/// By subprogram, each parameter once, in order.
std::vector<std::vector<GradientTerm>> gradientTerms(const rt::pb::Plan &plan);

} // namespace espalier
