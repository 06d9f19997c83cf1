// Regular expressions of tokenizer files: PCRE2 with Unicode classes and JIT. ^ and $ match at every line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

namespace espalier::rt {

/// A compiled pattern. Each thread needs its own Regex, because find() uses scratch memory although it is const.
class Regex {
public:
  /// Compiles the pattern. Throws DataError naming `file` for an invalid pattern.
  Regex(const std::string &file, const std::string &pattern);
  ~Regex();
  Regex(const Regex &) = delete;
  Regex &operator=(const Regex &) = delete;

  /// Returns the first match in `text` from `start` as [first, second). first is npos if there is no match. Bytes that
  /// are not UTF-8 never match. Throws DataError if the match exceeds the step limit, or if too many matches of this
  /// object take long for the text that they cover: a file cannot take hours.
  std::pair<size_t, size_t> find(std::string_view text, size_t start) const;

private:
  std::string fileName;
  pcre2_real_code_8 *code = nullptr;
  pcre2_real_match_data_8 *scratch = nullptr;
  pcre2_real_match_context_8 *fewSteps = nullptr, *manySteps = nullptr;
  mutable uint64_t slowMatches = 0, coveredBytes = 0;
};

} // namespace espalier::rt
