#include "compiler/import/megatron/stage_layout.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <string_view>

namespace espalier {

namespace {

constexpr size_t longestLayout = 200000; // letters after expansion of repeats

/// Returns the number after `*` at `place`: 1 if there is no `*`, and 0 if the number is missing or too large.
size_t readRepeat(const std::string &text, size_t &place) {
  if (place >= text.size() || text[place] != '*')
    return 1;
  size_t number = 0;
  for (++place; place < text.size() && std::isdigit(static_cast<unsigned char>(text[place])); ++place)
    number = std::min(longestLayout + 1, 10 * number + static_cast<size_t>(text[place] - '0'));
  return number > longestLayout ? 0 : number;
}

/// Expands repeats: "(tt|)*2" becomes "tt|tt|". Groups cannot nest.
std::string expand(const std::string &text, std::string &fault) {
  std::string letters;
  for (size_t i = 0; i < text.size() && fault.empty();) {
    std::string part(1, text[i]);
    if (text[i] == ',' || text[i] == ' ') {
      ++i;
      continue;
    }
    if (text[i] == '(') {
      size_t end = text.find_first_of("()", i + 1);
      if (end == std::string::npos || text[end] == '(') {
        fault = "a group is not closed, or holds another one";
        break;
      }
      part = expand(text.substr(i + 1, end - i - 1), fault);
      i = end;
    } else if (std::string_view("EtLm|").find(text[i]) == std::string_view::npos) {
      fault = fmt::format("'{}' is no part of a layout, wanted E, t, L, |, groups in parentheses and *N", text[i]);
      break;
    }
    size_t times = readRepeat(text, ++i);
    if (times == 0 || letters.size() + times * part.size() > longestLayout)
      fault = fmt::format("a repeat must be between 1 and {} letters in all", longestLayout);
    for (size_t time = 0; time < times && fault.empty(); ++time)
      letters += part;
  }
  return letters;
}

} // namespace

StageLayout readStageLayout(const std::string &text) {
  StageLayout layout;
  std::string letters = expand(text, layout.fault);
  if (!layout.fault.empty())
    return layout;
  if (letters.find('m') != std::string::npos)
    layout.fault = "prediction of several tokens (m) is not built";
  else if (!letters.starts_with('E') || !letters.ends_with('L') || std::ranges::count(letters, 'E') != 1 ||
           std::ranges::count(letters, 'L') != 1)
    layout.fault = "the embedding (E) has to come first and the head (L) last, once each";
  layout.layers.push_back(0);
  for (char letter : letters)
    if (letter == '|')
      layout.layers.push_back(0);
    else if (letter == 't')
      ++layout.layers.back();
  return layout;
}

} // namespace espalier
