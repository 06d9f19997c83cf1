#include "compiler/import/shell/pattern.h"

#include <cctype>

namespace espalier::shell {

namespace {

bool isOfClass(unsigned char c, std::string_view name) {
  return name == "alpha"   ? std::isalpha(c) != 0
         : name == "digit" ? std::isdigit(c) != 0
         : name == "alnum" ? std::isalnum(c) != 0
         : name == "space" ? std::isspace(c) != 0
         : name == "upper" ? std::isupper(c) != 0
         : name == "lower" ? std::islower(c) != 0
         : name == "punct" ? std::ispunct(c) != 0
         : name == "blank" ? c == ' ' || c == '\t'
                           : false;
}

} // namespace

bool Pattern::isExtended() const {
  for (size_t i = 0; i + 1 < pattern.size(); ++i) {
    if (pattern[i] == '\\')
      ++i;
    else if (pattern[i + 1] == '(' && std::string_view("@!?+*").find(pattern[i]) != std::string_view::npos)
      return true;
  }
  return false;
}

bool Pattern::matchesSet(char c, size_t &at) const {
  size_t i = at + 1;
  bool isNegated = i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^'), isFound = false;
  i += isNegated;
  for (bool isFirst = true; i < pattern.size() && (isFirst || pattern[i] != ']'); isFirst = false) {
    if (pattern.compare(i, 2, "[:") == 0) {
      size_t end = pattern.find(":]", i);
      if (end != std::string::npos) {
        isFound |= isOfClass(static_cast<unsigned char>(c), std::string_view(pattern).substr(i + 2, end - i - 2));
        i = end + 2;
        continue;
      }
    }
    auto takeOne = [&] {
      i += pattern[i] == '\\' && i + 1 < pattern.size();
      return pattern[i++];
    };
    char low = takeOne(), high = low;
    if (i + 1 < pattern.size() && pattern[i] == '-' && pattern[i + 1] != ']') {
      ++i;
      high = takeOne();
    }
    isFound |= low <= c && c <= high;
  }
  if (i >= pattern.size()) { // without its end, the bracket is a character
    ++at;
    return c == '[';
  }
  at = i + 1;
  return isFound != isNegated;
}

bool Pattern::matchesOne(char c, size_t &at) const {
  if (pattern[at] == '[')
    return matchesSet(c, at);
  if (pattern[at] == '?') {
    ++at;
    return true;
  }
  at += pattern[at] == '\\' && at + 1 < pattern.size();
  return pattern[at++] == c;
}

bool Pattern::matches(std::string_view text) const {
  // A later star makes earlier ones superfluous: only the last one takes more characters when a match fails.
  size_t i = 0, at = 0, star = std::string::npos, taken = 0, steps = 1;
  bool isMatch = true;
  while (isMatch && (i < text.size() || at < pattern.size())) {
    ++steps;
    if (at < pattern.size() && pattern[at] == '*') {
      star = ++at;
      taken = i;
      continue;
    }
    size_t next = at;
    if (at < pattern.size() && i < text.size() && matchesOne(text[i], next)) {
      steps += next - at;
      at = next;
      ++i;
    } else if (star != std::string::npos && taken < text.size()) {
      at = star;
      i = ++taken;
    } else {
      isMatch = false;
    }
  }
  budget.step(steps, place);
  return isMatch;
}

std::pair<size_t, size_t> Pattern::lengths(size_t size) const {
  size_t characters = 0;
  for (size_t at = 0; at < pattern.size(); ++characters) {
    if (pattern[at] == '*')
      return {0, size};
    matchesOne('\0', at);
  }
  return {characters, characters};
}

std::optional<size_t> Pattern::find(size_t size, bool isLongest,
                                    const std::function<bool(size_t length)> &matchesPart) const {
  auto [least, most] = lengths(size);
  for (size_t i = least; i <= most && most <= size; ++i)
    if (size_t length = isLongest ? most + least - i : i; matchesPart(length))
      return length;
  return std::nullopt;
}

std::optional<size_t> Pattern::prefix(std::string_view text, bool isLongest) const {
  return find(text.size(), isLongest, [&](size_t length) { return matches(text.substr(0, length)); });
}

std::optional<size_t> Pattern::suffix(std::string_view text, bool isLongest) const {
  return find(text.size(), isLongest, [&](size_t length) { return matches(text.substr(text.size() - length)); });
}

} // namespace espalier::shell
