// Finds a literal or a regular expression in a text, for the steps of a tokenizer.json.
#pragma once

#include "format/regex.h"
#include "runtime/tokenizer/hf_json.h"
#include "runtime/tokenizer/hf_pattern.h"
#include "runtime/utf8.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// A range of a text, and whether the pattern matched it.
struct Stretch {
  size_t begin, end;
  bool isMatch;
};

/// Finds all matches of a pattern.
class Finder {
public:
  /// Compiles the pattern. Throws DataError naming `file` for an empty literal or an invalid pattern.
  Finder(const std::string &file, const HfPattern &pattern) : literal(pattern.text) {
    if (pattern.isRegex)
      regex = std::make_unique<Regex>(file, publishedPattern(file, pattern.text));
    else if (literal.empty())
      throw DataError(file, "an empty pattern matches nothing");
  }
  /// Returns ranges that cover the text: the matches and the text between them. Skips empty matches.
  std::vector<Stretch> cover(std::string_view text) const {
    std::vector<Stretch> stretches;
    size_t done = 0, from = 0;
    while (from < text.size()) {
      auto [begin, end] = find(text, from);
      if (begin == std::string_view::npos)
        break;
      if (begin == end) {
        from = end < text.size() ? end + decodeUtf8(text, end).bytes : end;
        if (end >= text.size())
          break;
        continue;
      }
      if (begin > done)
        stretches.push_back({done, begin, false});
      stretches.push_back({begin, end, true});
      done = from = end;
    }
    if (done < text.size())
      stretches.push_back({done, text.size(), false});
    return stretches;
  }

private:
  std::pair<size_t, size_t> find(std::string_view text, size_t from) const {
    if (regex)
      return regex->find(text, from);
    size_t at = text.find(literal, from);
    return {at, at == std::string_view::npos ? at : at + literal.size()};
  }
  std::string literal;
  std::unique_ptr<Regex> regex;
};

} // namespace espalier::rt
