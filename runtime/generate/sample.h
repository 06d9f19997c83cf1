// Samples a token from logits. The result depends only on the logits, the options and the draw number, so a text does
// not depend on its batch or on the parallel plan.
#pragma once

#include "runtime/generate/request.h"

#include <span>

namespace espalier::rt {

/// A token and its probability.
struct TokenProbability {
  int32_t token = 0;
  double probability = 0;
};

/// Returns the candidate tokens, best first; ties go to the lower token. Probabilities sum to 1. Logits are divided by
/// the temperature, then cut to the topK best, then to the smallest set with total probability topP, then to
/// the tokens with minP of the best token's probability. Tokens without probability are left out. Temperature 0 leaves
/// one token.
std::vector<TokenProbability> distribution(std::span<const float> logits, const Sampling &sampling);

/// Returns the logits with the penalties and the bias of `sampling`, for the next token behind `prompt` and `text`.
std::vector<float> adjustedLogits(std::span<const float> logits, const Sampling &sampling,
                                  std::span<const int32_t> prompt, std::span<const int32_t> text);

/// Returns the score of `token`, with the `best` most probable tokens.
TokenScore scoreToken(std::span<const float> logits, int32_t token, int32_t best);

/// Returns the token for draw number `draw` of a text.
int32_t sampleToken(std::span<const float> logits, const Sampling &sampling, uint64_t draw);

/// Returns the token at cumulative probability `place`, in [0, 1).
int32_t tokenAt(std::span<const TokenProbability> tokens, double place);

} // namespace espalier::rt
