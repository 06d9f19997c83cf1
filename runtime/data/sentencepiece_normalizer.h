// SentencePiece's normalizer: a compiled map of character sequences, then its rules for spaces,
// which it writes "▁".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier::rt {

/// Finds the longest entry that starts a text. Entries are few (user-defined pieces), so lengths
/// are tried in turn.
class PrefixMatcher {
public:
  explicit PrefixMatcher(std::vector<std::string> entries = {});
  /// Bytes of the longest entry that `text` starts with, 0 for none.
  size_t match(std::string_view text) const;

private:
  std::vector<std::string> sorted; // by first byte, longest first
  std::vector<std::pair<uint32_t, uint32_t>> ranges;
};

class SentencePieceNormalizer {
public:
  struct Rules {
    bool addsDummyPrefix = true;
    bool removesExtraSpaces = true;
    bool escapesSpaces = true;
    bool hasSpaceAsSuffix = false;
  };
  /// `charsMap` is the model's precompiled map, empty for none; throws DataError naming `file` when
  /// it is torn.
  SentencePieceNormalizer(const std::string &file, std::string charsMap, Rules rules, PrefixMatcher userDefined);

  std::string normalize(std::string_view text) const;
  const PrefixMatcher &userDefined() const { return matcher; }

private:
  /// What the start of `text` becomes, and how many bytes of it that takes.
  std::pair<std::string_view, size_t> step(std::string_view text) const;
  uint32_t unit(size_t at) const;

  std::string map;      // trie units, then strings that end with a zero byte
  size_t trieBytes = 0; // the trie starts behind a 4-byte length
  Rules rules;
  PrefixMatcher matcher;
};

} // namespace espalier::rt
