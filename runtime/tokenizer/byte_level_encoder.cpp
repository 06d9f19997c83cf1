// A byte whose character is not a token is dropped, as in HF's tokenizers. GPT-2 vocabularies with a missing byte are
// rejected earlier.
#include "runtime/tokenizer/byte_level_encoder.h"

#include "messages/data_error.h"
#include "runtime/tokenizer/byte_level.h"

#include <fmt/format.h>

namespace espalier::rt {

ByteLevelEncoder::ByteLevelEncoder(std::shared_ptr<const BpeVocabulary> tables, bool wholeWords)
    : vocabulary(std::move(tables)), takesWholeWords(wholeWords), byteIds(vocabulary->byteIds()) {}

void ByteLevelEncoder::mergeWord(std::string_view word) {
  merged.clear();
  if (takesWholeWords)
    if (int32_t id = vocabulary->idOf(toByteLevel(word)); id >= 0) {
      merged.push_back(id);
      return;
    }
  for (char c : word)
    if (int32_t id = byteIds[static_cast<uint8_t>(c)]; id >= 0)
      merged.push_back(id);
  vocabulary->merges().apply(merged);
}

void ByteLevelEncoder::encodeWord(std::string_view text, size_t position, size_t end, std::vector<int32_t> &ids) {
  size_t length = end - position;
  if (length == 0)
    return;
  if (length > WordCache::longestWord) {
    mergeWord(text.substr(position, length));
    ids.insert(ids.end(), merged.begin(), merged.end());
    return;
  }
  WordCache::Key key = WordCache::keyOf(text, position, length);
  if (cache.append(key, length, ids))
    return;
  mergeWord(text.substr(position, length));
  cache.store(key, length, merged);
  ids.insert(ids.end(), merged.begin(), merged.end());
}

void ByteLevelEncoder::encodeText(std::string_view text, std::vector<int32_t> &ids) {
  for (size_t at = 0; at < text.size();) {
    size_t end = scanner.pieceEnd(text, at);
    encodeWord(text, at, end, ids);
    at = end;
  }
}

std::string decodeByteLevel(const BpeVocabulary &vocabulary, std::span<const int32_t> ids, const std::string &file) {
  std::string out;
  for (int32_t id : ids) {
    if (!vocabulary.hasToken(id))
      throw DataError(file, fmt::format("id {} is no token, want 0 to {}", id, vocabulary.size() - 1));
    const std::string &text = vocabulary.textOf(id);
    std::optional<std::string> bytes = fromByteLevel(text);
    out += bytes ? *bytes : text;
  }
  return out;
}

} // namespace espalier::rt
