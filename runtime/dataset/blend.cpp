// Both orders match Megatron's bit for bit, including the arithmetic: products in double, strict comparison.
#include "runtime/dataset/blend.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace espalier::rt {

BlendOrder blendByWeight(std::span<const double> weights, int64_t size) {
  BlendOrder order{std::vector<int16_t>(size), std::vector<int64_t>(size)};
  std::vector<int64_t> drawn(weights.size());
  for (int64_t k = 0; k < size; ++k) {
    double scale = std::max(static_cast<double>(k), 1.0);
    size_t chosen = 0;
    double largest = weights[0] * scale - static_cast<double>(drawn[0]);
    for (size_t i = 1; i < weights.size(); ++i) {
      double lag = weights[i] * scale - static_cast<double>(drawn[i]);
      if (lag > largest) {
        largest = lag;
        chosen = i;
      }
    }
    order.part[k] = static_cast<int16_t>(chosen);
    order.sample[k] = drawn[chosen]++;
  }
  return order;
}

BlendOrder blendExhaustively(std::span<const int64_t> sizes) {
  int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  BlendOrder order{std::vector<int16_t>(total), std::vector<int64_t>(total)};
  std::vector<int64_t> drawn(sizes.size());
  for (int64_t k = 0; k < total; ++k) {
    double scale = std::max(static_cast<double>(k), 1.0);
    size_t chosen = sizes.size();
    double largest = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (drawn[i] == sizes[i])
        continue; // this dataset is used up
      double weight = static_cast<double>(sizes[i]) / static_cast<double>(total);
      double lag = weight * scale - static_cast<double>(drawn[i]);
      if (chosen == sizes.size() || lag > largest) {
        largest = lag;
        chosen = i;
      }
    }
    order.part[k] = static_cast<int16_t>(chosen);
    order.sample[k] = drawn[chosen]++;
  }
  return order;
}

} // namespace espalier::rt
