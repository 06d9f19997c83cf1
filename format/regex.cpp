// Matching has a step limit, because the pattern comes from a file that may be hostile.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "format/regex.h"

#include "messages/data_error.h"

#include <fmt/format.h>
#include <pcre2.h>

namespace espalier::rt {

namespace {
constexpr uint32_t stepLimit = 10'000'000;

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
  limits = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(limits, stepLimit);
}

Regex::~Regex() {
  pcre2_match_context_free(limits);
  pcre2_match_data_free(scratch);
  pcre2_code_free(code);
}

std::pair<size_t, size_t> Regex::find(std::string_view text, size_t start) const {
  int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start, 0, scratch, limits);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) // the interpreter keeps its stack on the heap
    found =
        pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start, PCRE2_NO_JIT, scratch, limits);
  if (found == PCRE2_ERROR_NOMATCH)
    return {std::string_view::npos, std::string_view::npos};
  if (found < 0)
    throw DataError(fileName, fmt::format("the pattern fails on a text: {}", messageOf(found)));
  const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(scratch);
  return {ends[0], ends[1]};
}

} // namespace espalier::rt
