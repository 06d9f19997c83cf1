#include "tools/run/describe_completion.h"

#include <algorithm>

namespace espalier {
namespace {

double perSecond(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

} // namespace

nlohmann::ordered_json describeCompletion(size_t promptTokens, const rt::Completion &completion) {
  auto generated = static_cast<double>(completion.tokens.size());
  return {{"tokens", completion.tokens},
          {"text", completion.text},
          {"finish_reason", std::string(rt::finishName(completion.finish))},
          {"prefill_tokens_per_second", perSecond(static_cast<double>(promptTokens), completion.prefillSeconds)},
          // The first token comes from the prefill.
          {"decode_tokens_per_second", perSecond(std::max(0.0, generated - 1), completion.decodeSeconds)}};
}

} // namespace espalier
