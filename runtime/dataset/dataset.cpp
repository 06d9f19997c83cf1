// Converts seqLength + 1 tokens to the inputs of a training step: tokens, labels, loss weights, positions and document
// borders.
#include "runtime/dataset/dataset.h"

#include <algorithm>

namespace espalier::rt {

namespace {

void fillLossWeights(std::span<const int32_t> text, const DatasetOptions &options, std::span<float> weights) {
  bool masksEod = options.eodMaskLoss && options.eodToken >= 0;
  for (size_t k = 0; k < weights.size(); ++k) {
    bool isPadding = text[k + 1] < 0;
    weights[k] = isPadding || (masksEod && text[k] == options.eodToken) ? 0.0F : 1.0F;
  }
}

} // namespace

void Dataset::fillBorders(int64_t /*i*/, std::span<const int32_t> text, const SampleView &out) const {
  int32_t start = 0;
  bool hasEod = settings.eodToken >= 0;
  for (size_t k = 0; k + 1 < text.size(); ++k) {
    auto place = static_cast<int32_t>(k);
    if (!out.positions.empty())
      out.positions[k] = settings.resetPositionIds ? place - start : place;
    if (!out.visibleFrom.empty())
      out.visibleFrom[k] = settings.resetAttentionMask ? start : 0;
    if (hasEod && text[k] == settings.eodToken)
      start = place + 1;
  }
}

void Dataset::read(int64_t i, const SampleView &out) const {
  std::vector<int32_t> text(settings.seqLength + 1);
  read(i, out, text);
}

void Dataset::read(int64_t i, const SampleView &out, std::span<int32_t> text) const {
  readTokens(i, text);
  fillLossWeights(text, settings, out.lossWeights);
  fillBorders(i, text, out);
  // Padding is -1 until here. It becomes 0, because an embedding needs an existing row.
  std::ranges::replace(text, -1, 0);
  std::copy_n(text.begin(), out.tokens.size(), out.tokens.begin());
  std::copy_n(text.begin() + 1, out.labels.size(), out.labels.begin());
  if (out.lossWeights.empty() || !readLossMask(i, text))
    return;
  for (size_t k = 0; k < out.lossWeights.size(); ++k)
    if (text[k + 1] == 0)
      out.lossWeights[k] = 0;
}

Sample Dataset::sample(int64_t i) const {
  size_t length = settings.seqLength;
  Sample result{std::vector<int32_t>(length), std::vector<int32_t>(length), std::vector<float>(length),
                std::vector<int32_t>(length), std::vector<int32_t>(length)};
  read(i, {result.tokens, result.labels, result.lossWeights, result.positions, result.visibleFrom});
  return result;
}

} // namespace espalier::rt
