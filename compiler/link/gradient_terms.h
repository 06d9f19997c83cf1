// Finds the gradients that a subprogram accumulates into and the gathered parameters that it reads.
#pragma once

#include "format/plan.pb.h"

#include <compare>
#include <cstdint>
#include <set>
#include <vector>

namespace espalier {

/// A parameter of a bucket, identified by the value of its gradient.
struct GradientTerm {
  uint32_t bucket = 0, value = 0;
  auto operator<=>(const GradientTerm &) const = default;
};

/// Returns, by subprogram, the parameters whose gradients it accumulates, each once and in order.
std::vector<std::vector<GradientTerm>> gradientTerms(const rt::pb::Plan &plan);

/// Returns, by subprogram, the buckets whose gathered parameters it reads.
std::vector<std::set<uint32_t>> gatheredReads(const rt::pb::Plan &plan);

} // namespace espalier
