// Classifies code points as the patterns and steps of published tokenizers do.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// The four classes of pre-tokenizer patterns: \p{L}, \p{N}, \s and others.
enum class CharClass : uint8_t { other, letter, number, space };

/// A table with one byte per code point.
class UnicodeClasses {
public:
  UnicodeClasses();
  /// A character's class and its length in bytes.
  struct Found {
    CharClass kind;
    uint8_t bytes;
  };
  /// Returns the class and length of the character at `position`. A byte that is not UTF-8 is `other`.
  Found at(std::string_view text, size_t position) const;
  /// Returns the class of a code point.
  CharClass of(char32_t codePoint) const { return static_cast<CharClass>(table[codePoint] & kindBits); }
  /// Returns whether \w matches: letters, marks, decimal digits, letter-like numbers and symbols, connectors, joiners.
  bool isWord(char32_t codePoint) const { return table[codePoint] & wordBit; }
  /// Returns whether \w matches the character at `position`. It does not match a byte that is not UTF-8.
  bool isWordAt(std::string_view text, size_t position) const;
  /// Returns whether the code point is ASCII punctuation or an ASCII symbol, or was punctuation in Unicode 8.
  bool isPunctuation(char32_t codePoint) const { return table[codePoint] & punctuationBit; }

private:
  static constexpr uint8_t kindBits = 3, wordBit = 4, punctuationBit = 8;
  std::vector<uint8_t> table; // class and bits of each code point
};

/// Returns the table, which the first call builds. It is constant and takes one megabyte.
const UnicodeClasses &unicodeClasses();

} // namespace espalier::rt
