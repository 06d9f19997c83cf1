#include "compiler/import/shell/braces.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <optional>

namespace espalier::shell {

namespace {

bool isSign(const Part &part, char sign) {
  return part.kind == Part::Literal && !part.isQuoted && part.text.size() == 1 && part.text[0] == sign;
}

/// Splits the unquoted literals of a word, so that each brace and comma is a part.
Word withSigns(const Word &word) {
  Word parts;
  for (const Part &part : word) {
    if (part.kind != Part::Literal || part.isQuoted) {
      parts.push_back(part);
      continue;
    }
    for (size_t begin = 0; begin < part.text.size();) {
      size_t end = std::min(part.text.bytes().find_first_of("{},", begin), part.text.size());
      end = std::max(end, begin + 1);
      parts.push_back(part);
      parts.back().text = part.text.slice(begin, end);
      begin = end;
    }
  }
  return parts;
}

std::optional<int64_t> numberOf(std::string_view text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// Returns the elements of FIRST..LAST or FIRST..LAST..STEP, of numbers or letters. Empty if the text is none.
std::vector<std::string> sequence(const std::string &text, Budget &budget, const Place &place) {
  size_t dots = text.find(".."), more = dots == std::string::npos ? dots : text.find("..", dots + 2);
  if (dots == std::string::npos)
    return {};
  std::string first = text.substr(0, dots), last = text.substr(dots + 2, more - std::min(more, dots + 2));
  std::optional<int64_t> from = numberOf(first), to = numberOf(last);
  std::optional<int64_t> step = more == std::string::npos ? 1 : numberOf(text.substr(more + 2));
  auto isLetter = [](const std::string &name) {
    return name.size() == 1 && std::isalpha(static_cast<unsigned char>(name[0])) != 0;
  };
  bool areLetters = isLetter(first) && isLetter(last);
  if (areLetters)
    from = first[0], to = last[0];
  if (!from || !to || !step)
    return {};
  auto isPadded = [](const std::string &number) {
    size_t sign = number.starts_with("-") ? 1 : 0;
    return number.size() > sign + 1 && number[sign] == '0';
  };
  size_t width = isPadded(first) || isPadded(last) ? std::max(first.size(), last.size()) : 0;
  auto size = static_cast<uint64_t>(*step == 0 ? 1 : *step < 0 ? -(*step + 1) + uint64_t(1) : *step);
  uint64_t distance = *from < *to ? uint64_t(*to) - uint64_t(*from) : uint64_t(*from) - uint64_t(*to);
  std::vector<std::string> elements;
  for (uint64_t i = 0; i <= distance / size; ++i) {
    budget.hold(100, place);
    auto value = static_cast<int64_t>(*from < *to ? uint64_t(*from) + i * size : uint64_t(*from) - i * size);
    elements.push_back(areLetters ? std::string(1, static_cast<char>(value)) : fmt::format("{:0{}}", value, width));
  }
  return elements;
}

/// A group between braces: its place among the parts, and the begins of its alternatives.
struct Group {
  size_t open = 0, close = 0;
  std::vector<size_t> commas;
};

std::optional<Group> groupAt(const Word &parts, size_t open) {
  Group group{open, 0, {}};
  int depth = 0;
  for (size_t i = open; i < parts.size(); ++i) {
    depth += isSign(parts[i], '{') - isSign(parts[i], '}');
    if (depth == 1 && isSign(parts[i], ','))
      group.commas.push_back(i);
    group.close = i;
    if (depth == 0)
      return group;
  }
  return std::nullopt;
}

std::vector<Word> expandParts(const Word &parts, Budget &budget) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!isSign(parts[i], '{'))
      continue;
    budget.step(parts.size(), parts[i].place);
    std::optional<Group> group = groupAt(parts, i);
    if (!group)
      continue;
    std::vector<Word> alternatives;
    if (!group->commas.empty()) {
      size_t begin = i + 1;
      group->commas.push_back(group->close);
      for (size_t end : group->commas) {
        for (Word &word : expandParts({parts.begin() + begin, parts.begin() + end}, budget))
          alternatives.push_back(std::move(word));
        begin = end + 1;
      }
    } else if (group->close == i + 2 && parts[i + 1].kind == Part::Literal && !parts[i + 1].isQuoted) {
      for (const std::string &element : sequence(parts[i + 1].text.bytes(), budget, parts[i].place)) {
        Part literal = parts[i + 1];
        literal.text = Text(element, parts[i].text.placeOf(0));
        alternatives.push_back({literal});
      }
    }
    if (alternatives.empty())
      continue;
    std::vector<Word> words;
    std::vector<Word> tails = expandParts({parts.begin() + group->close + 1, parts.end()}, budget);
    for (const Word &alternative : alternatives)
      for (const Word &tail : tails) {
        budget.hold((i + alternative.size() + tail.size()) * sizeof(Part), parts[i].place);
        words.emplace_back(parts.begin(), parts.begin() + i);
        words.back().insert(words.back().end(), alternative.begin(), alternative.end());
        words.back().insert(words.back().end(), tail.begin(), tail.end());
      }
    return words;
  }
  return {parts};
}

} // namespace

std::vector<Word> expandBraces(const Word &word, Budget &budget) {
  bool hasBrace = std::any_of(word.begin(), word.end(), [](const Part &part) {
    return part.kind == Part::Literal && !part.isQuoted && part.text.bytes().find('{') != std::string::npos;
  });
  return hasBrace ? expandParts(withSigns(word), budget) : std::vector<Word>{word};
}

} // namespace espalier::shell
