// From logits to a token. Everything is a function of the logits, the options and the number of the draw, so that a
// text depends on neither the batch that it was made in nor the split of the model.
#pragma once

#include "runtime/generate/request.h"

#include <span>

namespace espalier::rt {

struct TokenProbability {
  int32_t token = 0;
  double probability = 0;
};

/// The tokens that may be drawn, best first, of equal ones the lower; probabilities sum to 1. Temperature divides the
/// logits; then the topK best stay, then of these the fewest that have topP of their probability together. Temperature
/// 0 leaves one token.
std::vector<TokenProbability> distribution(std::span<const float> logits, const Sampling &sampling);

/// The token for draw number `draw` of a text.
int32_t sampleToken(std::span<const float> logits, const Sampling &sampling, uint64_t draw);

/// The token of a distribution in which `place`, from 0 to below 1, falls.
int32_t tokenAt(std::span<const TokenProbability> tokens, double place);

} // namespace espalier::rt
