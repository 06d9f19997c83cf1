// Matches the patterns of `case`, [[ == ]] and ${NAME#PATTERN}.
#pragma once

#include "compiler/import/shell/budget.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace espalier::shell {

/// A pattern: characters, * ? [...], and \ before characters that stand for themselves.
class Pattern {
public:
  Pattern(std::string pattern, Budget &budget, const Place &place)
      : pattern(std::move(pattern)), budget(budget), place(place) {}

  /// Returns whether the pattern has a form that is not evaluated, such as @(a|b).
  bool isExtended() const;

  bool isEmpty() const { return pattern.empty(); }
  /// Returns whether the pattern matches every text.
  bool isAll() const { return !pattern.empty() && pattern.find_first_not_of('*') == std::string::npos; }

  /// Of ${NAME/PATTERN/TEXT}: returns whether the pattern begins with # or %, which binds it to an end of the text.
  bool isAnchored(char sign) const { return !pattern.empty() && pattern[0] == sign; }
  Pattern withoutAnchor() const { return {pattern.substr(1), budget, place}; }

  /// Returns whether the pattern matches all of the text.
  bool matches(std::string_view text) const;

  /// Returns the length of the shortest or longest match at the begin of the text, or nothing.
  std::optional<size_t> prefix(std::string_view text, bool isLongest) const;
  /// Returns the length of the shortest or longest match at the end of the text, or nothing.
  std::optional<size_t> suffix(std::string_view text, bool isLongest) const;

private:
  /// Returns the lengths of texts to try: all of them, or the one that the pattern can match because it has no star.
  std::pair<size_t, size_t> lengths(size_t size) const;
  std::optional<size_t> find(size_t size, bool isLongest, const std::function<bool(size_t length)> &matchesPart) const;
  /// Matches one character against the element at `at`, and moves `at` behind the element.
  bool matchesOne(char c, size_t &at) const;
  bool matchesSet(char c, size_t &at) const;

  std::string pattern;
  Budget &budget;
  Place place;
};

} // namespace espalier::shell
