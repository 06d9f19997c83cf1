// What a caller asks of a model, and what comes back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// How the next token is chosen from the logits; see sample.h.
struct Sampling {
  double temperature = 0; ///< 0: the best token
  int64_t topK = 0;       ///< of so many best tokens; 0: of all
  double topP = 1;        ///< of the fewest best tokens that have this probability together
  uint64_t seed = 0;      ///< equal seeds, prompts and options give equal text, whatever runs beside
};

struct Request {
  std::vector<int32_t> prompt; ///< at least one token
  int64_t maxTokens = 64;
  Sampling sampling;
  std::vector<std::string> stop; ///< the text ends before the first of them
};

/// Why a text ended.
enum class Finish {
  None,   ///< it has not
  Stop,   ///< a stop string, or the token that ends a document
  Length, ///< maxTokens, or the end of the context
};

/// "stop" or "length", as OpenAI's interface has them; empty where it has not ended.
std::string_view finishName(Finish finish);

struct Completion {
  std::vector<int32_t> tokens; ///< without the prompt
  std::string text;            ///< of them, without the stop string
  Finish finish = Finish::None;
  double prefillSeconds = 0, decodeSeconds = 0;
};

} // namespace espalier::rt
