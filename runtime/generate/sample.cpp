#include "runtime/generate/sample.h"

#include "format/abi.h"

#include <algorithm>
#include <cmath>
#include <limits>
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

/// Returns logits that can be compared and summed: NaN is the lowest number, and infinities are the outermost ones. A
/// model with weights that are not finite gives such logits. `changed` holds the result if it differs.
std::span<const float> comparable(std::span<const float> logits, std::vector<float> &changed) {
  if (std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); }))
    return logits;
  constexpr float most = std::numeric_limits<float>::max();
  changed.assign(logits.begin(), logits.end());
  for (float &logit : changed)
    logit = std::isnan(logit) ? -most : std::clamp(logit, -most, most);
  return changed;
}

/// Returns 53 random bits as a number in [0, 1).
double uniform(uint64_t seed, uint64_t draw) {
  auto low = static_cast<uint32_t>(seed), high = static_cast<uint32_t>(seed >> 32);
  uint64_t a = randomBits(low, high, 0, 0, 2 * draw), b = randomBits(low, high, 0, 0, 2 * draw + 1);
  return static_cast<double>((a << 32 | b) >> 11) * 0x1p-53;
}

/// Returns the `count` best tokens, best first.
std::vector<int32_t> bestTokens(std::span<const float> logits, size_t count) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  auto end = order.begin() + static_cast<std::ptrdiff_t>(count);
  if (end != order.end())
    std::nth_element(order.begin(), end, order.end(), Better{logits});
  std::sort(order.begin(), end, Better{logits});
  order.resize(count);
  return order;
}

/// Returns exp((logit - largest) / temperature) of each token.
std::vector<float> weightsOf(std::span<const float> logits, double temperature) {
  double largest = *std::ranges::max_element(logits);
  std::vector<float> weights(logits.size());
  std::ranges::transform(logits, weights.begin(),
                         [&](float logit) { return std::exp(static_cast<float>((logit - largest) / temperature)); });
  return weights;
}

double sumOf(std::span<const float> weights) { return std::accumulate(weights.begin(), weights.end(), 0.0); }

bool isTopKUsed(const Sampling &sampling, size_t vocabulary) {
  return sampling.topK > 0 && static_cast<size_t>(sampling.topK) < vocabulary;
}

/// Returns the candidates, best first, with their weights. Sorts only as many tokens as topP can keep.
std::vector<TokenProbability> candidatesOf(std::span<const float> logits, std::span<const float> weights,
                                           const Sampling &sampling) {
  constexpr size_t kFirstSorted = 64, kGrowth = 8;
  size_t most = isTopKUsed(sampling, logits.size()) ? static_cast<size_t>(sampling.topK) : logits.size();
  bool isWhole = most < logits.size() || (sampling.topP >= 1 && sampling.minP == 0);
  for (size_t count = isWhole ? most : std::min(kFirstSorted, most);; count = std::min(count * kGrowth, most)) {
    std::vector<TokenProbability> tokens;
    double sorted = 0, kept = 0;
    for (int32_t token : bestTokens(logits, count)) {
      tokens.push_back({token, weights[static_cast<size_t>(token)]});
      sorted += tokens.back().probability;
    }
    double wanted = sampling.topP * (isWhole ? sorted : sumOf(weights));
    size_t end = 0;
    while (end < tokens.size() && (end == 0 || sampling.topP >= 1 || kept < wanted))
      kept += tokens[end++].probability;
    double least = tokens.front().probability * sampling.minP;
    if (kept >= wanted || count == most || tokens.back().probability < least) {
      while (end > 1 && (tokens[end - 1].probability < least || tokens[end - 1].probability == 0))
        --end;
      tokens.resize(end);
      return tokens;
    }
  }
}

} // namespace

std::vector<TokenProbability> distribution(std::span<const float> given, const Sampling &sampling) {
  std::vector<float> changed;
  std::span<const float> logits = comparable(given, changed);
  if (sampling.temperature <= 0)
    return {{static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()), 1}};
  std::vector<TokenProbability> tokens = candidatesOf(logits, weightsOf(logits, sampling.temperature), sampling);
  double kept = 0;
  for (const TokenProbability &token : tokens)
    kept += token.probability;
  for (TokenProbability &token : tokens)
    token.probability /= kept;
  return tokens;
}

std::vector<float> adjustedLogits(std::span<const float> logits, const Sampling &sampling,
                                  std::span<const int32_t> prompt, std::span<const int32_t> text) {
  std::vector<float> adjusted(logits.begin(), logits.end());
  std::vector<int32_t> counts(logits.size()); // -1: only in the prompt
  for (int32_t token : prompt)
    counts[static_cast<size_t>(token)] = -1;
  for (int32_t token : text) {
    int32_t &count = counts[static_cast<size_t>(token)];
    count = std::max(count, 0) + 1;
  }
  for (size_t token = 0; token < counts.size(); ++token) {
    if (counts[token] == 0)
      continue;
    double logit = adjusted[token];
    logit = logit > 0 ? logit / sampling.repetitionPenalty : logit * sampling.repetitionPenalty;
    if (counts[token] > 0)
      logit -= sampling.presencePenalty + sampling.frequencyPenalty * counts[token];
    adjusted[token] = static_cast<float>(logit);
  }
  for (auto [token, bias] : sampling.bias)
    adjusted[static_cast<size_t>(token)] += static_cast<float>(bias);
  return adjusted;
}

int32_t tokenAt(std::span<const TokenProbability> tokens, double place) {
  double sum = 0;
  for (const TokenProbability &token : tokens)
    if ((sum += token.probability) > place)
      return token.token;
  return tokens.back().token; // reached by rounding errors
}

TokenScore scoreToken(std::span<const float> given, int32_t token, int32_t best) {
  std::vector<float> changed;
  std::span<const float> logits = comparable(given, changed);
  double largest = *std::ranges::max_element(logits), sum = 0;
  for (float logit : logits)
    sum += std::exp(logit - largest);
  auto scoreOf = [&](int32_t one) { return logits[static_cast<size_t>(one)] - largest - std::log(sum); };
  TokenScore score{token, scoreOf(token), {}};
  for (int32_t one : bestTokens(logits, std::min(logits.size(), static_cast<size_t>(best))))
    score.best.emplace_back(one, scoreOf(one));
  return score;
}

int32_t sampleToken(std::span<const float> given, const Sampling &sampling, uint64_t draw) {
  std::vector<float> changed;
  std::span<const float> logits = comparable(given, changed);
  double place = uniform(sampling.seed, draw);
  bool isWhole =
      sampling.temperature > 0 && sampling.topP >= 1 && sampling.minP == 0 && !isTopKUsed(sampling, logits.size());
  if (!isWhole)
    return tokenAt(distribution(logits, sampling), place);
  // Without a cut the order of the tokens does not matter, and sorting a vocabulary costs milliseconds.
  std::vector<float> weights = weightsOf(logits, sampling.temperature);
  double left = place * sumOf(weights);
  auto chosen = std::ranges::find_if(weights, [&](float weight) { return (left -= weight) < 0; });
  if (chosen == weights.end()) // reached by rounding errors
    while (*--chosen == 0) {
    }
  return static_cast<int32_t>(chosen - weights.begin());
}

} // namespace espalier::rt
