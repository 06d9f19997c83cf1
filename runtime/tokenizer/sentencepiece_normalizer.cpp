// The map is a Darts double array (layout of Yata's darts-clone): 32-bit units, indexed by XOR of offset and byte.
// Every step is checked against the number of units, because the file may be corrupt.
#include "runtime/tokenizer/sentencepiece_normalizer.h"

#include "messages/data_error.h"
#include "runtime/utf8.h"

#include <cstring>
#include <fmt/format.h>

namespace espalier::rt {

namespace {
constexpr std::string_view escapedSpace = "\xE2\x96\x81"; // ▁
constexpr std::string_view replacement = "\xEF\xBF\xBD";
} // namespace

CharsMap::CharsMap(const std::string &file, std::string bytes) : map(std::move(bytes)) {
  if (map.empty())
    return;
  uint32_t length = 0;
  if (map.size() > sizeof length)
    std::memcpy(&length, map.data(), sizeof length);
  if (length == 0 || length % 4 != 0 || length >= map.size() - sizeof length || map.back() != 0)
    throw DataError(file, fmt::format("the normalizer map of {} bytes claims a trie of {}", map.size(), length));
  trieBytes = length;
}

uint32_t CharsMap::unit(size_t at) const {
  uint32_t value = 0;
  if (4 * at < trieBytes)
    std::memcpy(&value, map.data() + 4 + 4 * at, sizeof value);
  return value;
}

CharsMap::Match CharsMap::match(std::string_view text, bool wantsShortest) const {
  auto offset = [](uint32_t value) { return (value >> 10) << ((value & (1U << 9)) >> 6); };
  Match found;
  size_t node = trieBytes > 0 ? offset(unit(0)) : 0, strings = 4 + trieBytes;
  for (size_t i = 0; trieBytes > 0 && i < text.size() && !(wantsShortest && found.taken > 0); ++i) {
    node ^= static_cast<uint8_t>(text[i]);
    uint32_t value = unit(node);
    if ((value & ((1U << 31) | 0xFF)) != static_cast<uint8_t>(text[i]))
      break;
    node ^= offset(value);
    size_t entry = unit(node) & 0x7FFFFFFF;
    if (((value >> 8) & 1) && entry < map.size() - strings)
      found = {std::string_view(map.data() + strings + entry), i + 1};
    if (4 * node >= trieBytes)
      break;
  }
  return found;
}

SentencePieceNormalizer::SentencePieceNormalizer(const std::string &file, std::string charsMap, Rules rules,
                                                 PrefixTree userDefined)
    : map(file, std::move(charsMap)), rules(rules), kept(std::move(userDefined)) {}

std::pair<std::string_view, size_t> SentencePieceNormalizer::step(std::string_view text) const {
  if (size_t length = kept.longest(text).first)
    return {text.substr(0, length), length};
  if (CharsMap::Match match = map.longest(text); match.taken > 0)
    return {match.made, match.taken};
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
