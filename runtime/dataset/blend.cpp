// Both orders match Megatron's bit for bit, including the arithmetic: products in double, strict comparison.
#include "runtime/dataset/blend.h"

#include "runtime/files/data_error.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <numeric>
#include <optional>

namespace espalier::rt {

namespace {

/// Returns the number that a word is, or nothing.
std::optional<double> numberOf(const std::string &word) {
  char *end = nullptr;
  double number = std::strtod(word.c_str(), &end);
  return end == word.c_str() || *end != 0 ? std::nullopt : std::optional(number);
}

} // namespace

std::vector<BlendPart> parseBlend(const std::vector<std::string> &words) {
  if (words.empty())
    throw DataError("data path", "no entry, must be paths, or pairs of weight and path");
  size_t numbers = 0;
  for (size_t i = 0; i < words.size(); i += 2)
    numbers += numberOf(words[i]).has_value();
  bool isEven = words.size() % 2 == 0;
  bool hasWeights = words.size() > 1 && (isEven ? numbers > 0 : numbers == words.size() / 2 + 1);
  if (hasWeights && !isEven)
    throw DataError("data path", fmt::format("{} entries, must be paths, or pairs of weight and path", words.size()));
  std::vector<BlendPart> parts;
  for (size_t i = 0; i < words.size(); ++i) {
    BlendPart part{0, words[i]};
    if (hasWeights) {
      part.weight = numberOf(words[i]).value_or(-1);
      if (!(part.weight > 0) || std::isinf(part.weight))
        throw DataError(
            "data path",
            fmt::format("\"{}\" is no weight, want a number above 0: weight path weight path, or paths alone",
                        words[i]));
      part.path = words[++i];
    }
    if (part.path.empty())
      throw DataError("data path", "a path is empty");
    parts.push_back(part);
  }
  return parts;
}

bool isWeighted(const std::vector<BlendPart> &parts) {
  return std::ranges::any_of(parts, [](const BlendPart &part) { return part.weight != 0; });
}

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
