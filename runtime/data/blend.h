// The parts of a blend and the order in which it draws from them: always the part that lags its share the most, so
// that every prefix of the run has the proportions asked for, within one sample.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// One part of a blend: how often it is drawn from, relative to the others, and what openDataset takes.
struct BlendPart {
  double weight;
  std::string path;
};

/// Reads Megatron's list form: one path, or WEIGHT PATH WEIGHT PATH ... Throws DataError where a weight is no number
/// above 0 or a path is empty.
std::vector<BlendPart> parseBlend(const std::vector<std::string> &words);

/// Sample k of a blend is sample `sample[k]` of part `part[k]`.
struct BlendOrder {
  std::vector<int16_t> part;
  std::vector<int64_t> sample;
};

/// `size` draws in proportion to `weights` (positive, summing to 1). Draw k goes to the part with
/// the largest weights[i] * max(k, 1) - drawn[i], the lowest i among equals.
BlendOrder blendByWeight(std::span<const double> weights, int64_t size);

/// Draws every sample of every part once, in proportion to the sizes.
BlendOrder blendExhaustively(std::span<const int64_t> sizes);

} // namespace espalier::rt
