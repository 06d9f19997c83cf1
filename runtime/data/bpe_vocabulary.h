// The tables of a BPE tokenizer as its files give them: token texts, their ids, and the merges. The
// text of a token is what the file says, for byte-level vocabularies in byte-level characters.
#pragma once

#include "runtime/data/bpe.h"

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace espalier::rt {

class BpeVocabulary {
public:
  /// `entries` is {"text": id, ...}. Throws DataError naming `file` for ids that are negative, no
  /// integers or far beyond the number of entries, so that no table grows with a hostile number.
  static BpeVocabulary fromJson(const std::string &file, const nlohmann::json &entries);

  /// Adds the next merge; throws DataError when a part or their union is no token.
  void addMerge(const std::string &file, int64_t line, const std::string &left, const std::string &right);
  /// Adds the merges of a merges.txt: one pair a line, lines of "#version" skipped.
  void addMergeLines(const std::string &file, std::string_view text);

  /// -1 when `text` is no token.
  int32_t idOf(const std::string &text) const;
  /// Adds or renames a token outside the model, such as <|endoftext|>.
  void setToken(int32_t id, const std::string &text);
  const std::string &textOf(int32_t id) const { return texts[id]; }
  bool hasToken(int32_t id) const { return id >= 0 && id < size() && present[id]; }
  /// One more than the largest id.
  int64_t size() const { return static_cast<int64_t>(texts.size()); }
  const BpeMerges &merges() const { return mergeTable; }
  /// The id of each byte's byte-level character, -1 where the vocabulary lacks it.
  std::array<int32_t, 256> byteIds() const;

private:
  std::vector<std::string> texts;
  std::vector<bool> present;
  std::unordered_map<std::string, int32_t> ids; // looked up only; its order is never seen
  BpeMerges mergeTable;
  int32_t nextRank = 0;
};

/// Parses JSON text; throws DataError with the parser's place and reason.
nlohmann::json parseJsonFile(const std::string &file, std::string_view text);

} // namespace espalier::rt
