// The constructors check every claim of the files, so encoding never produces an id without a text.
#include "runtime/tokenizer/bpe_vocabulary.h"

#include "messages/data_error.h"
#include "messages/json_reason.h"
#include "runtime/tokenizer/byte_level.h"
#include "runtime/utf8.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {

nlohmann::json parseJsonFile(const std::string &file, std::string_view text) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception &error) {
    throw DataError(file, fmt::format("not JSON: {}", jsonReason(error)));
  }
}

BpeVocabulary BpeVocabulary::fromJson(const std::string &file, const nlohmann::json &entries) {
  if (!entries.is_object() || entries.empty())
    throw DataError(file, "the vocabulary is no object of token texts and ids");
  // Ids are dense except for a few reserved ones. This limit keeps a wrong id from enlarging the tables.
  int64_t limit = 2 * static_cast<int64_t>(entries.size()) + 4096;
  BpeVocabulary vocabulary;
  for (const auto &[text, value] : entries.items()) {
    if (!value.is_number_integer())
      throw DataError(file, fmt::format("token \"{}\" has no integer id", text.substr(0, 60)));
    int64_t id = value.get<int64_t>();
    if (id < 0 || id >= limit)
      throw DataError(file, fmt::format("token \"{}\" has id {}, want 0 to {}", text.substr(0, 60), id, limit - 1));
    vocabulary.setToken(static_cast<int32_t>(id), text);
  }
  return vocabulary;
}

void BpeVocabulary::setToken(int32_t id, const std::string &text) {
  if (id >= size()) {
    texts.resize(id + 1);
    present.resize(id + 1);
  }
  texts[id] = text;
  present[id] = true;
  ids[text] = id;
}

int32_t BpeVocabulary::idOf(const std::string &text) const {
  auto found = ids.find(text);
  return found == ids.end() ? -1 : found->second;
}

void BpeVocabulary::addMerge(const std::string &file, int64_t line, const std::string &left, const std::string &right) {
  int32_t parts[] = {idOf(left), idOf(right), idOf(left + right)};
  const std::string names[] = {left, right, left + right};
  for (int i = 0; i < 3; ++i)
    if (parts[i] < 0)
      throw DataError(
          file,
          fmt::format("merge {} uses \"{}\", which is not in the vocabulary", nextRank + 1, names[i].substr(0, 60)),
          line);
  mergeTable.add(parts[0], parts[1], nextRank++, parts[2]);
}

void BpeVocabulary::addMergeLines(const std::string &file, std::string_view text) {
  int64_t line = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    std::string_view one = text.substr(at, end - at);
    at = end + 1;
    ++line;
    if (one.ends_with('\r'))
      one.remove_suffix(1);
    if (one.empty() || one.starts_with("#version"))
      continue;
    size_t space = one.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == one.size() ||
        one.find(' ', space + 1) != std::string_view::npos)
      throw DataError(file, "want two tokens with one space between them", line);
    addMerge(file, line, std::string(one.substr(0, space)), std::string(one.substr(space + 1)));
  }
}

std::vector<std::pair<int32_t, int32_t>> BpeVocabulary::halvesOf(int32_t id) const {
  const std::string &text = texts[id];
  std::vector<std::pair<int32_t, int32_t>> halves;
  for (size_t at = decodeUtf8(text, 0).bytes; at < text.size(); at += decodeUtf8(text, at).bytes) {
    int32_t left = idOf(text.substr(0, at));
    int32_t right = left < 0 ? -1 : idOf(text.substr(at));
    if (right >= 0)
      halves.emplace_back(left, right);
  }
  std::ranges::sort(halves);
  return halves;
}

void BpeVocabulary::addMergesByRank(int32_t first) {
  for (int32_t id = first; id < size(); ++id)
    for (auto [left, right] : halvesOf(id))
      mergeTable.add(left, right, id, id);
}

std::array<int32_t, 256> BpeVocabulary::byteIds() const {
  std::array<char32_t, 256> chars = byteLevelChars();
  std::array<int32_t, 256> found;
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    appendUtf8(chars[byte], text);
    found[byte] = idOf(text);
  }
  return found;
}

} // namespace espalier::rt
