// The sampling order of a blend of datasets. Each sample comes from the dataset that is furthest behind its weight, so
// every prefix of the order has the requested proportions within one sample.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace espalier::rt {

/// Sample k of a blend is sample `sample[k]` of dataset `part[k]`.
struct BlendOrder {
  std::vector<int16_t> part;
  std::vector<int64_t> sample;
};

/// Returns an order of `size` samples in proportion to `weights`, which are positive and sum to 1. Sample k comes from
/// the dataset with the largest weights[i] * max(k, 1) - drawn[i]. Among equals, the lowest i wins.
BlendOrder blendByWeight(std::span<const double> weights, int64_t size);

/// Returns an order with every sample of every dataset once, in proportion to the sizes.
BlendOrder blendExhaustively(std::span<const int64_t> sizes);

} // namespace espalier::rt
