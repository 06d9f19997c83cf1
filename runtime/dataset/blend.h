// The sampling order of a blend of datasets. Each sample comes from the dataset that is furthest behind its weight, so
// every prefix of the order has the requested proportions within one sample.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// One dataset of a blend: its relative weight, and the path for openDataset.
struct BlendPart {
  double weight;
  std::string path;
};

/// Parses Megatron's list form: one path, or WEIGHT PATH WEIGHT PATH ... Throws DataError if a weight is not a number
/// above 0 or if a path is empty.
std::vector<BlendPart> parseBlend(const std::vector<std::string> &words);

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
