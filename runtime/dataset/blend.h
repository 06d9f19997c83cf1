// The sampling order of a blend of datasets. Each sample comes from the dataset that is furthest behind its weight, so
// every prefix of the order has the requested proportions within one sample.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// One dataset of a blend: its relative weight, and the path for openDataset. In a list without weights, all are 0.
struct BlendPart {
  double weight;
  std::string path;
};

/// Parses Megatron's list form: WEIGHT PATH WEIGHT PATH ..., or PATH PATH ... if no word in the place of a weight is a
/// number. Throws DataError if only some weights are numbers, a weight is not above 0, or a path is missing or empty.
std::vector<BlendPart> parseBlend(const std::vector<std::string> &words);

/// Returns whether the parts have weights. Parts without weights are drawn in proportion to their samples.
bool isWeighted(const std::vector<BlendPart> &parts);

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
