#include "compiler/import/pipeline_layout.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier {

namespace {

constexpr size_t mostCharacters = 100'000; // written out
constexpr int mostNested = 8;

/// Writes repeated parts out. A part is one character or what stands in parentheses.
class Expander {
public:
  explicit Expander(const std::string &text) : text(text) {}

  /// Up to the end, or to the parenthesis that closes `depth`.
  std::string expand(int depth) {
    std::string whole;
    while (place < text.size() && fault.empty() && text[place] != ')') {
      std::string part(1, text[place++]);
      if (part == "(") {
        if (depth == mostNested) {
          fault = fmt::format("parentheses are nested deeper than {}", mostNested);
          break;
        }
        part = expand(depth + 1);
        if (fault.empty() && (place == text.size() || text[place++] != ')'))
          fault = "a parenthesis is not closed";
      }
      for (size_t count = repetitions(); count > 0 && fault.empty(); --count) {
        whole += part;
        if (whole.size() > mostCharacters)
          fault = fmt::format("written out it is longer than {} characters", mostCharacters);
        if (part.empty())
          break;
      }
    }
    if (depth == 0 && fault.empty() && place < text.size())
      fault = "a parenthesis is closed that is not open";
    return whole;
  }

  std::string fault;

private:
  size_t repetitions() {
    if (place == text.size() || text[place] != '*')
      return 1;
    size_t first = ++place, count = 0;
    for (; place < text.size() && text[place] >= '0' && text[place] <= '9'; ++place)
      count = std::min(count * 10 + (text[place] - '0'), mostCharacters + 1);
    if (place == first)
      fault = "'*' is not followed by a number";
    return count;
  }

  const std::string &text;
  size_t place = 0;
};

} // namespace

PipelineLayout readPipelineLayout(const std::string &given) {
  PipelineLayout layout;
  std::string text = given;
  std::erase_if(text, [](char c) { return c == ',' || c == ' '; });
  Expander expander(text);
  std::string whole = expander.expand(0);
  layout.fault = expander.fault;
  if (!layout.fault.empty())
    return layout;
  if (size_t unknown = whole.find_first_not_of("EtL|"); unknown != std::string::npos) {
    layout.fault = whole[unknown] == 'm' ? std::string("layers that predict several tokens (m) are not built")
                                         : fmt::format("'{}' is not known, there are E, t, L and |", whole[unknown]);
    return layout;
  }
  if (!whole.starts_with('E') || !whole.ends_with('L') || std::ranges::count(whole, 'E') != 1 ||
      std::ranges::count(whole, 'L') != 1) {
    layout.fault = "the embedding (E) has to stand first and the loss (L) last, once each";
    return layout;
  }
  layout.layers.assign(1, 0);
  for (char c : whole)
    if (c == '|')
      layout.layers.push_back(0);
    else if (c == 't')
      ++layout.layers.back();
  return layout;
}

} // namespace espalier
