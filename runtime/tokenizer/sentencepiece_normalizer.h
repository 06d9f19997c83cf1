// SentencePiece's normalizer: a compiled map of character sequences, followed by rules for spaces, which are written as
// "▁".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier::rt {

/// Finds the longest entry that starts a text. There are few entries (user-defined pieces), so all lengths are tried.
class PrefixMatcher {
public:
  /// Sorts the entries. Empty entries are dropped.
  explicit PrefixMatcher(std::vector<std::string> entries = {});
  /// Returns the bytes of the longest entry that `text` starts with, or 0.
  size_t match(std::string_view text) const;

private:
  std::vector<std::string> sorted; // by first byte, longest first
  std::vector<std::pair<uint32_t, uint32_t>> ranges;
};

/// Normalizes text as a SentencePiece model requires.
class SentencePieceNormalizer {
public:
  /// The rules for spaces in a model.
  struct Rules {
    bool addsDummyPrefix = true;
    bool removesExtraSpaces = true;
    bool escapesSpaces = true;
    bool hasSpaceAsSuffix = false;
  };
  /// Creates a normalizer. `charsMap` is the model's precompiled map, or empty. Throws DataError naming `file` if the
  /// map is corrupt.
  SentencePieceNormalizer(const std::string &file, std::string charsMap, Rules rules, PrefixMatcher userDefined);

  /// Returns the normalized text.
  std::string normalize(std::string_view text) const;
  /// Returns the matcher of user-defined pieces.
  const PrefixMatcher &userDefined() const { return matcher; }

private:
  /// Returns the replacement for the start of `text`, and the number of replaced bytes.
  std::pair<std::string_view, size_t> step(std::string_view text) const;
  uint32_t unit(size_t at) const;

  std::string map;      // trie units, then zero-terminated strings
  size_t trieBytes = 0; // the trie starts after a 4-byte length
  Rules rules;
  PrefixMatcher matcher;
};

} // namespace espalier::rt
