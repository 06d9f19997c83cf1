// The map is a Darts double array (layout of Yata's darts-clone): 32-bit units, indexed by XOR of offset and byte.
// Every step is checked against the number of units, because the file may be corrupt.
#include "runtime/tokenizer/sentencepiece_normalizer.h"

#include "messages/data_error.h"
#include "runtime/utf8.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace espalier::rt {

namespace {
constexpr std::string_view escapedSpace = "\xE2\x96\x81"; // ▁
constexpr std::string_view replacement = "\xEF\xBF\xBD";
} // namespace

PrefixMatcher::PrefixMatcher(std::vector<std::string> entries) : sorted(std::move(entries)), ranges(256) {
  std::erase(sorted, "");
  std::ranges::sort(sorted, [](const std::string &a, const std::string &b) {
    auto lead = [](const std::string &s) { return static_cast<uint8_t>(s[0]); };
    if (lead(a) != lead(b))
      return lead(a) < lead(b);
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  for (uint32_t i = 0; i < sorted.size(); ++i) {
    auto &range = ranges[static_cast<uint8_t>(sorted[i][0])];
    if (range.second == 0)
      range.first = i;
    range.second = i + 1;
  }
}

size_t PrefixMatcher::match(std::string_view text) const {
  if (text.empty())
    return 0;
  auto [first, end] = ranges[static_cast<uint8_t>(text[0])];
  for (uint32_t i = first; i < end; ++i)
    if (text.starts_with(sorted[i]))
      return sorted[i].size();
  return 0;
}

SentencePieceNormalizer::SentencePieceNormalizer(const std::string &file, std::string charsMap, Rules rules,
                                                 PrefixMatcher userDefined)
    : map(std::move(charsMap)), rules(rules), matcher(std::move(userDefined)) {
  if (map.empty())
    return;
  uint32_t length = 0;
  if (map.size() > sizeof length)
    std::memcpy(&length, map.data(), sizeof length);
  if (length == 0 || length % 4 != 0 || length >= map.size() - sizeof length || map.back() != 0)
    throw DataError(file, fmt::format("the normalizer map of {} bytes claims a trie of {}", map.size(), length));
  trieBytes = length;
}

uint32_t SentencePieceNormalizer::unit(size_t at) const {
  uint32_t value = 0;
  if (4 * at < trieBytes)
    std::memcpy(&value, map.data() + 4 + 4 * at, sizeof value);
  return value;
}

std::pair<std::string_view, size_t> SentencePieceNormalizer::step(std::string_view text) const {
  if (size_t length = matcher.match(text))
    return {text.substr(0, length), length};
  auto offset = [](uint32_t value) { return (value >> 10) << ((value & (1U << 9)) >> 6); };
  size_t longest = 0, entry = 0;
  size_t node = trieBytes > 0 ? offset(unit(0)) : 0;
  for (size_t i = 0; trieBytes > 0 && i < text.size(); ++i) {
    node ^= static_cast<uint8_t>(text[i]);
    uint32_t value = unit(node);
    if ((value & ((1U << 31) | 0xFF)) != static_cast<uint8_t>(text[i]))
      break;
    node ^= offset(value);
    if ((value >> 8) & 1) {
      longest = i + 1;
      entry = unit(node) & 0x7FFFFFFF;
    }
    if (4 * node >= trieBytes)
      break;
  }
  size_t strings = 4 + trieBytes;
  if (longest > 0 && entry < map.size() - strings)
    return {std::string_view(map.data() + strings + entry), longest};
  DecodedChar found = decodeUtf8(text, 0);
  return {found.isValid ? text.substr(0, found.bytes) : replacement, found.bytes};
}

std::string SentencePieceNormalizer::normalize(std::string_view text) const {
  std::string out;
  std::string_view space = rules.escapesSpaces ? escapedSpace : " ";
  if (rules.removesExtraSpaces)
    while (!text.empty()) {
      auto [made, taken] = step(text);
      if (made != " ")
        break;
      text.remove_prefix(taken);
    }
  if (text.empty())
    return out;
  if (rules.addsDummyPrefix && !rules.hasSpaceAsSuffix)
    out += space;
  bool isAfterSpace = rules.removesExtraSpaces;
  while (!text.empty()) {
    auto [made, taken] = step(text);
    while (isAfterSpace && made.starts_with(' '))
      made.remove_prefix(1);
    for (char c : made)
      if (c == ' ')
        out += space;
      else
        out += c;
    if (!made.empty())
      isAfterSpace = made.ends_with(' ');
    text.remove_prefix(taken);
    if (!rules.removesExtraSpaces)
      isAfterSpace = false;
  }
  if (rules.removesExtraSpaces)
    while (out.ends_with(space))
      out.resize(out.size() - space.size());
  if (rules.addsDummyPrefix && rules.hasSpaceAsSuffix)
    out += space;
  return out;
}

} // namespace espalier::rt
