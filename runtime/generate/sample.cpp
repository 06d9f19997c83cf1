#include "runtime/generate/sample.h"

#include "runtime/abi.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace espalier::rt {

namespace {

/// Orders tokens by logit; ties go to the lower token.
struct Better {
  std::span<const float> logits;

  bool operator()(int32_t a, int32_t b) const {
    auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    return logits[i] != logits[j] ? logits[i] > logits[j] : a < b;
  }
};

/// Returns 53 random bits as a number in [0, 1).
double uniform(uint64_t seed, uint64_t draw) {
  auto low = static_cast<uint32_t>(seed), high = static_cast<uint32_t>(seed >> 32);
  uint64_t a = randomBits(low, high, 0, 0, 2 * draw), b = randomBits(low, high, 0, 0, 2 * draw + 1);
  return static_cast<double>((a << 32 | b) >> 11) * 0x1p-53;
}

} // namespace

std::vector<TokenProbability> distribution(std::span<const float> logits, const Sampling &sampling) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  Better better{logits};
  if (sampling.temperature <= 0)
    return {{*std::min_element(order.begin(), order.end(), better), 1}};
  size_t count = sampling.topK > 0 ? std::min(order.size(), static_cast<size_t>(sampling.topK)) : order.size();
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), better);
  std::vector<TokenProbability> tokens;
  double largest = logits[static_cast<size_t>(order[0])], sum = 0;
  for (size_t i = 0; i < count; ++i) {
    double weight = std::exp((logits[static_cast<size_t>(order[i])] - largest) / sampling.temperature);
    tokens.push_back({order[i], weight});
    sum += weight;
  }
  double wanted = sampling.topP * sum, kept = 0;
  size_t end = 0;
  while (end < tokens.size() && (end == 0 || (sampling.topP < 1 ? kept < wanted : true)))
    kept += tokens[end++].probability;
  tokens.resize(end);
  for (TokenProbability &token : tokens)
    token.probability /= kept;
  return tokens;
}

int32_t tokenAt(std::span<const TokenProbability> tokens, double place) {
  double sum = 0;
  for (const TokenProbability &token : tokens)
    if ((sum += token.probability) > place)
      return token.token;
  return tokens.back().token; // reached by rounding errors
}

TokenScore scoreToken(std::span<const float> logits, int32_t token, int32_t best) {
  double largest = *std::ranges::max_element(logits), sum = 0;
  for (float logit : logits)
    sum += std::exp(logit - largest);
  auto scoreOf = [&](int32_t one) { return logits[static_cast<size_t>(one)] - largest - std::log(sum); };
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  auto count = std::min<std::ptrdiff_t>(best, std::ssize(order));
  std::partial_sort(order.begin(), order.begin() + count, order.end(), Better{logits});
  TokenScore score{token, scoreOf(token), {}};
  for (std::ptrdiff_t i = 0; i < count; ++i)
    score.best.emplace_back(order[static_cast<size_t>(i)], scoreOf(order[static_cast<size_t>(i)]));
  return score;
}

int32_t sampleToken(std::span<const float> logits, const Sampling &sampling, uint64_t draw) {
  std::vector<TokenProbability> tokens = distribution(logits, sampling);
  return tokens.size() == 1 ? tokens[0].token : tokenAt(tokens, uniform(sampling.seed, draw));
}

} // namespace espalier::rt
