// SentencePiece's normalizer: a compiled map of character sequences, followed by rules for spaces, which are written as
// "▁".
#pragma once

#include "runtime/tokenizer/prefix_tree.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace espalier::rt {

/// A compiled map of character sequences, as SentencePiece writes it.
class CharsMap {
public:
  /// Reads a map; an empty one maps nothing. Throws DataError naming `file` if it is corrupt.
  CharsMap(const std::string &file, std::string bytes);

  /// A replaced sequence at the start of a text.
  struct Match {
    std::string_view made;
    size_t taken = 0; ///< replaced bytes; 0 without a match
  };
  /// Returns the longest sequence of the map that `text` starts with.
  Match longest(std::string_view text) const { return match(text, /*wantsShortest=*/false); }
  /// Returns the shortest sequence of the map that `text` starts with.
  Match shortest(std::string_view text) const { return match(text, /*wantsShortest=*/true); }

private:
  Match match(std::string_view text, bool wantsShortest) const;
  uint32_t unit(size_t at) const;

  std::string map;      // trie units, then zero-terminated strings
  size_t trieBytes = 0; // the trie starts after a 4-byte length
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
  SentencePieceNormalizer(const std::string &file, std::string charsMap, Rules rules, PrefixTree userDefined);

  /// Returns the normalized text.
  std::string normalize(std::string_view text) const;
  /// Returns the user-defined pieces.
  const PrefixTree &userDefined() const { return kept; }

private:
  /// Returns the replacement for the start of `text`, and the number of replaced bytes.
  std::pair<std::string_view, size_t> step(std::string_view text) const;

  CharsMap map;
  Rules rules;
  PrefixTree kept;
};

} // namespace espalier::rt
