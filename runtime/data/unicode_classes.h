// What kind of character a code point is, as the patterns and steps of published tokenizers see it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// The four kinds that pre-tokenizer patterns tell apart: \p{L}, \p{N}, \s and the rest.
enum class CharClass : uint8_t { other, letter, number, space };

/// A table of one byte a code point.
class UnicodeClasses {
public:
  UnicodeClasses();
  struct Found {
    CharClass kind;
    uint8_t bytes;
  };
  /// The class and length of the character at `position`; a byte that is no UTF-8 is `other`.
  Found at(std::string_view text, size_t position) const;
  CharClass of(char32_t codePoint) const { return static_cast<CharClass>(table[codePoint] & kindBits); }
  /// \w: letters, marks, decimal digits, letter-like numbers and symbols, connectors, joiners.
  bool isWord(char32_t codePoint) const { return table[codePoint] & wordBit; }
  /// The character at `position` is \w; a byte that is no UTF-8 is not.
  bool isWordAt(std::string_view text, size_t position) const;
  /// ASCII's punctuation and symbols, and what Unicode 8 had as punctuation.
  bool isPunctuation(char32_t codePoint) const { return table[codePoint] & punctuationBit; }

private:
  static constexpr uint8_t kindBits = 3, wordBit = 4, punctuationBit = 8;
  std::vector<uint8_t> table; // kind and bits of each code point
};

/// The table, made when it is first asked for; it never changes, and is a megabyte.
const UnicodeClasses &unicodeClasses();

} // namespace espalier::rt
