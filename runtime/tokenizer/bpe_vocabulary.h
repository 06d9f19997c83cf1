// The tables of a BPE tokenizer: token texts, ids and merges. A text is stored as in the file, so byte-level
// vocabularies use byte-level characters.
#pragma once

#include "runtime/tokenizer/bpe.h"

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace espalier::rt {

/// The vocabulary and the merges of a BPE model.
class BpeVocabulary {
public:
  /// Reads {"text": id, ...}. Throws DataError naming `file` if an id is negative, not an integer, or far above the
  /// number of entries, so that a hostile number cannot enlarge a table.
  static BpeVocabulary fromJson(const std::string &file, const nlohmann::json &entries);

  /// Adds the next merge. Throws DataError if a side or the merged text is not a token.
  void addMerge(const std::string &file, int64_t line, const std::string &left, const std::string &right);
  /// Adds the merges of a merges.txt: one pair per line. Skips "#version" lines.
  void addMergeLines(const std::string &file, std::string_view text);

  /// Adds a merge for each way to cut a token into two tokens, for all tokens from `first` on. The rank of a merge is
  /// the id of the merged token.
  void addMergesByRank(int32_t first);
  /// Returns the ways to cut a token into two tokens, sorted by ids.
  std::vector<std::pair<int32_t, int32_t>> halvesOf(int32_t id) const;

  /// Returns the id of `text`, or -1 if it is not a token.
  int32_t idOf(const std::string &text) const;
  /// Adds or renames a token outside the model, such as <|endoftext|>.
  void setToken(int32_t id, const std::string &text);
  /// Returns the text of a token.
  const std::string &textOf(int32_t id) const { return texts[id]; }
  /// Returns whether a token has this id.
  bool hasToken(int32_t id) const { return id >= 0 && id < size() && present[id]; }
  /// Returns the largest id plus 1.
  int64_t size() const { return static_cast<int64_t>(texts.size()); }
  /// Returns the merges.
  const BpeMerges &merges() const { return mergeTable; }
  /// Returns the id of each byte's byte-level character, or -1 if the vocabulary lacks it.
  std::array<int32_t, 256> byteIds() const;

private:
  std::vector<std::string> texts;
  std::vector<bool> present;
  std::unordered_map<std::string, int32_t> ids; // only used for lookups, so the order does not matter
  BpeMerges mergeTable;
  int32_t nextRank = 0;
};

/// Parses JSON text. Throws DataError with the position and reason of a syntax error.
nlohmann::json parseJsonFile(const std::string &file, std::string_view text);

} // namespace espalier::rt
