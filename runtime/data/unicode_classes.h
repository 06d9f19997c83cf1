// The four kinds of character that pre-tokenizer patterns tell apart.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace espalier::rt {

enum class CharClass : uint8_t { other, letter, number, space };

/// A table of one byte a code point; about a megabyte, so it is shared between tokenizers of one
/// run.
class UnicodeClasses {
public:
  UnicodeClasses();
  struct Found {
    CharClass kind;
    uint8_t bytes;
  };
  /// The class and length of the character at `position`; a byte that is no UTF-8 is `other`.
  Found at(std::string_view text, size_t position) const;
  CharClass of(char32_t codePoint) const { return classes[codePoint]; }

private:
  std::vector<CharClass> classes;
};

} // namespace espalier::rt
