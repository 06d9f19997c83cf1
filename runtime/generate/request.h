// A generation request and its completion.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier::rt {

class Grammar;

/// The sampling of the next token from the logits; see sample.h.
struct Sampling {
  double temperature = 0; ///< 0: greedy
  int64_t topK = 0;       ///< sample from the k best tokens; 0: no limit
  double topP = 1;        ///< sample from the smallest set of best tokens with this total probability
  uint64_t seed = 0;      ///< equal seeds, prompts and options give equal text, independent of concurrent requests
  double minP = 0;        ///< sample from tokens with at least this share of the best token's probability
  /// OpenAI's penalties, subtracted from the logits of generated tokens: `presence` once, `frequency` per occurrence.
  double presencePenalty = 0, frequencyPenalty = 0;
  /// The penalty of transformers: positive logits of tokens of the prompt and the text are divided by this number,
  /// negative ones are multiplied.
  double repetitionPenalty = 1;
  std::vector<std::pair<int32_t, double>> bias = {}; ///< added to the logits of tokens

  /// Whether logits are sampled as the model gives them.
  bool leavesLogits() const {
    return presencePenalty == 0 && frequencyPenalty == 0 && repetitionPenalty == 1 && bias.empty();
  }
};

/// A generation request.
struct Request {
  std::vector<int32_t> prompt; ///< at least one token
  int64_t maxTokens = 64;      ///< 0: no token is generated
  Sampling sampling;
  std::shared_ptr<const Grammar> grammar; ///< of the text, which ends where the grammar ends; null: any text
  bool showsMarks = false;                ///< the text has the special tokens that a tokenizer's decoder leaves out
  std::vector<std::string> stop;          ///< the text ends before the first occurrence of any
  std::optional<int32_t> bestTokens;      ///< score generated tokens, with so many best alternatives each
  bool scoresPrompt = false;              ///< also score the prompt, which is then processed one token at a time
};

/// The logarithm of a token's probability under the model, before temperature and other sampling options.
struct TokenScore {
  int32_t token = 0;
  double logProbability = 0;
  std::vector<std::pair<int32_t, double>> best; ///< the most probable tokens, best first; ties go to the lower token
};

/// The reason why a text ended.
enum class Finish {
  None,   ///< not ended
  Stop,   ///< a stop string, or the end-of-document token
  Length, ///< maxTokens, or the end of the context
};

/// Returns "stop" or "length" as in OpenAI's API; empty if the text has not ended.
std::string_view finishName(Finish finish);

/// The output of a request.
struct Completion {
  std::vector<int32_t> tokens;          ///< without the prompt
  std::string text;                     ///< the text of `tokens`, without the stop string
  std::vector<TokenScore> promptScores; ///< of the prompt's tokens without the first, which nothing precedes
  std::vector<TokenScore> scores;       ///< of `tokens`, and of an end-of-document token that ended the text
  Finish finish = Finish::None;
  double prefillSeconds = 0, decodeSeconds = 0;
};

} // namespace espalier::rt
