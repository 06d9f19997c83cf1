// Regular expressions of tokenizer files: PCRE2 with Unicode classes and JIT; ^ and $ stand at every line.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

namespace espalier::rt {

/// One pattern; matching is const but uses scratch memory inside, so each thread has its own Regex.
class Regex {
public:
  /// Throws DataError naming `file` for a pattern that does not compile.
  Regex(const std::string &file, const std::string &pattern);
  ~Regex();
  Regex(const Regex &) = delete;
  Regex &operator=(const Regex &) = delete;

  /// The first match in `text` from `start` as [first, second); first is npos when there is none.
  /// Bytes that are no UTF-8 never match. Throws DataError when the pattern takes more steps than
  /// it may.
  std::pair<size_t, size_t> find(std::string_view text, size_t start) const;

private:
  std::string fileName;
  pcre2_real_code_8 *code = nullptr;
  pcre2_real_match_data_8 *scratch = nullptr;
  pcre2_real_match_context_8 *limits = nullptr;
};

} // namespace espalier::rt
