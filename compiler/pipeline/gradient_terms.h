// Which gradients a subprogram adds to, and which gathered parameters it reads.
#pragma once

#include "runtime/plan.pb.h"

#include <compare>
#include <cstdint>
#include <set>
#include <vector>

namespace espalier {

/// A parameter of a bucket, by the value that its gradient is.
struct GradientTerm {
  uint32_t bucket = 0, value = 0;
  auto operator<=>(const GradientTerm &) const = default;
};

/// By subprogram, each parameter once, in order.
std::vector<std::vector<GradientTerm>> gradientTerms(const rt::pb::Plan &plan);

/// By subprogram, the buckets of which it reads parameters that are gathered.
std::vector<std::set<uint32_t>> gatheredReads(const rt::pb::Plan &plan);

} // namespace espalier
