// Matching has a step limit, because the pattern comes from a file that may be hostile.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "format/regex.h"

#include "messages/data_error.h"

#include <fmt/format.h>
#include <pcre2.h>

namespace espalier::rt {

namespace {
/// A match of a usual pattern takes a step for each byte that it covers.
constexpr uint32_t fewStepsLimit = 20'000, manyStepsLimit = 10'000'000;
/// Slow matches that are allowed for any text, and bytes of text for each further one. A slow match takes at most 0.1
/// s.
constexpr uint64_t freeSlowMatches = 100, bytesPerSlowMatch = 4096;

pcre2_match_context *contextOf(uint32_t stepLimit) {
  pcre2_match_context *context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(context, stepLimit);
  return context;
}

std::string messageOf(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char *>(text);
}
} // namespace

Regex::Regex(const std::string &file, const std::string &pattern) : fileName(file) {
  int error = 0;
  PCRE2_SIZE place = 0;
  code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                       PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                       &error, &place, nullptr);
  if (!code)
    throw DataError(file, fmt::format("pattern at character {}: {}", place, messageOf(error)));
  // Without JIT, which some systems forbid, matching is slower but gives equal results.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  scratch = pcre2_match_data_create_from_pattern(code, nullptr);
  fewSteps = contextOf(fewStepsLimit);
  manySteps = contextOf(manyStepsLimit);
}

Regex::~Regex() {
  pcre2_match_context_free(manySteps);
  pcre2_match_context_free(fewSteps);
  pcre2_match_data_free(scratch);
  pcre2_code_free(code);
}

std::pair<size_t, size_t> Regex::find(std::string_view text, size_t start) const {
  auto match = [&](pcre2_match_context *limits) {
    auto bytes = reinterpret_cast<PCRE2_SPTR>(text.data());
    int found = pcre2_match(code, bytes, text.size(), start, 0, scratch, limits);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) // the interpreter keeps its stack on the heap
      found = pcre2_match(code, bytes, text.size(), start, PCRE2_NO_JIT, scratch, limits);
    return found;
  };
  int found = match(fewSteps);
  if (found == PCRE2_ERROR_MATCHLIMIT) {
    if (++slowMatches > freeSlowMatches + coveredBytes / bytesPerSlowMatch)
      throw DataError(fileName, fmt::format("the pattern is too slow: {} matches took more than {} steps each for {} "
                                            "bytes of text",
                                            slowMatches, fewStepsLimit, coveredBytes));
    found = match(manySteps);
  }
  if (found == PCRE2_ERROR_NOMATCH) {
    coveredBytes += text.size() - start;
    return {std::string_view::npos, std::string_view::npos};
  }
  if (found < 0)
    throw DataError(fileName, fmt::format("the pattern fails on a text: {}", messageOf(found)));
  const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(scratch);
  coveredBytes += ends[1] - start;
  return {ends[0], ends[1]};
}

} // namespace espalier::rt
