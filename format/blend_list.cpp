// A list has weights if numbers stand where weights would.
#include "format/blend_list.h"

#include "messages/data_error.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <optional>

namespace espalier::rt {

namespace {

/// Returns the number that a word is, or nothing.
std::optional<double> numberOf(const std::string &word) {
  char *end = nullptr;
  double number = std::strtod(word.c_str(), &end);
  return end == word.c_str() || *end != 0 ? std::nullopt : std::optional(number);
}

} // namespace

std::vector<BlendPart> parseBlend(const std::vector<std::string> &words) {
  if (words.empty())
    throw DataError("data path", "no entry, must be paths, or pairs of weight and path");
  size_t numbers = 0;
  for (size_t i = 0; i < words.size(); i += 2)
    numbers += numberOf(words[i]).has_value();
  bool isEven = words.size() % 2 == 0;
  bool hasWeights = words.size() > 1 && (isEven ? numbers > 0 : numbers == words.size() / 2 + 1);
  if (hasWeights && !isEven)
    throw DataError("data path", fmt::format("{} entries, must be paths, or pairs of weight and path", words.size()));
  std::vector<BlendPart> parts;
  for (size_t i = 0; i < words.size(); ++i) {
    BlendPart part{0, words[i]};
    if (hasWeights) {
      part.weight = numberOf(words[i]).value_or(-1);
      if (!(part.weight > 0) || std::isinf(part.weight))
        throw DataError(
            "data path",
            fmt::format("\"{}\" is no weight, want a number above 0: weight path weight path, or paths alone",
                        words[i]));
      part.path = words[++i];
    }
    if (part.path.empty())
      throw DataError("data path", "a path is empty");
    parts.push_back(part);
  }
  return parts;
}

bool isWeighted(const std::vector<BlendPart> &parts) {
  return std::ranges::any_of(parts, [](const BlendPart &part) { return part.weight != 0; });
}

} // namespace espalier::rt
