// Classes follow Unicode 16, as in the published tokenizers: the tables of the library (Unicode 15) plus later
// additions. Newer versions would change the tokens of texts with newer characters.
#include "runtime/tokenizer/unicode_classes.h"

#include "runtime/utf8.h"

#include <span>
#include <utf8proc.h>

namespace espalier::rt {

namespace {

struct Range {
  char32_t first, last;
};

constexpr Range spaces[] = {{0x9, 0xd},       {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
                            {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}};

constexpr Range letters16[] = {{0x1c89, 0x1c8a},   {0xa7cb, 0xa7cd},   {0xa7da, 0xa7dc},   {0x105c0, 0x105f3},
                               {0x10d4a, 0x10d65}, {0x10d6f, 0x10d85}, {0x10ec2, 0x10ec4}, {0x11380, 0x11389},
                               {0x1138b, 0x1138b}, {0x1138e, 0x1138e}, {0x11390, 0x113b5}, {0x113b7, 0x113b7},
                               {0x113d1, 0x113d1}, {0x113d3, 0x113d3}, {0x11bc0, 0x11be0}, {0x13460, 0x143fa},
                               {0x16100, 0x1611d}, {0x16d40, 0x16d6c}, {0x18cff, 0x18cff}, {0x1e5d0, 0x1e5ed},
                               {0x1e5f0, 0x1e5f0}, {0x2ebf0, 0x2ee5d}};

constexpr Range digits16[] = {{0x10d40, 0x10d49}, {0x116d0, 0x116e3}, {0x11bf0, 0x11bf9}, {0x16130, 0x16139},
                              {0x16d70, 0x16d79}, {0x1ccf0, 0x1ccf9}, {0x1e5f1, 0x1e5fa}};

constexpr Range marks16[] = {{0x897, 0x897},     {0x10d69, 0x10d6d}, {0x10efc, 0x10efc}, {0x113b8, 0x113c0},
                             {0x113c2, 0x113c2}, {0x113c5, 0x113c5}, {0x113c7, 0x113ca}, {0x113cc, 0x113d0},
                             {0x113d2, 0x113d2}, {0x113e1, 0x113e2}, {0x11f5a, 0x11f5a}, {0x1611e, 0x1612f},
                             {0x1e5ee, 0x1e5ef}};

/// Zero-width joiners and circled letters. They are part of words, although they are neither letters nor marks.
constexpr Range wordSymbols[] = {
    {0x200c, 0x200d}, {0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};

/// ASCII symbols, and two characters that were punctuation in Unicode 8.
constexpr Range formerPunctuation[] = {{0x24, 0x24}, {0x2b, 0x2b}, {0x3c, 0x3e},     {0x5e, 0x5e},      {0x60, 0x60},
                                       {0x7c, 0x7c}, {0x7e, 0x7e}, {0x166d, 0x166d}, {0x111c9, 0x111c9}};

constexpr Range punctuationSince8[] = {{0x61d, 0x61d},     {0x9fd, 0x9fd},     {0xa76, 0xa76},     {0xc77, 0xc77},
                                       {0xc84, 0xc84},     {0x1b7d, 0x1b7e},   {0x2e43, 0x2e4f},   {0x2e52, 0x2e5d},
                                       {0x10ead, 0x10ead}, {0x10f55, 0x10f59}, {0x10f86, 0x10f89}, {0x1144b, 0x1144f},
                                       {0x1145a, 0x1145b}, {0x1145d, 0x1145d}, {0x11660, 0x1166c}, {0x116b9, 0x116b9},
                                       {0x1183b, 0x1183b}, {0x11944, 0x11946}, {0x119e2, 0x119e2}, {0x11a3f, 0x11a46},
                                       {0x11a9a, 0x11a9c}, {0x11a9e, 0x11aa2}, {0x11b00, 0x11b09}, {0x11c41, 0x11c45},
                                       {0x11c70, 0x11c71}, {0x11ef7, 0x11ef8}, {0x11f43, 0x11f4f}, {0x11fff, 0x11fff},
                                       {0x12ff1, 0x12ff2}, {0x16e97, 0x16e9a}, {0x16fe2, 0x16fe2}, {0x1e95e, 0x1e95f}};

constexpr auto letterKind = static_cast<uint8_t>(CharClass::letter);
constexpr auto numberKind = static_cast<uint8_t>(CharClass::number);

/// Returns the kind, word bit and punctuation bit of a code point in the library's Unicode version.
uint8_t entryOf(utf8proc_int32_t codePoint, uint8_t word, uint8_t punctuation) {
  utf8proc_category_t category = utf8proc_category(codePoint);
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO)
    return letterKind | word;
  if (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME)
    return word;
  if (category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL)
    return numberKind | word;
  if (category == UTF8PROC_CATEGORY_NO)
    return numberKind;
  if (category == UTF8PROC_CATEGORY_PC)
    return word | punctuation;
  return category > UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO ? punctuation : 0;
}

} // namespace

UnicodeClasses::UnicodeClasses() : table(0x110000) {
  for (utf8proc_int32_t c = 0; c < 0x110000; ++c)
    table[c] = entryOf(c, wordBit, punctuationBit);
  auto set = [this](std::span<const Range> ranges, uint8_t cleared, uint8_t added) {
    for (Range range : ranges)
      for (char32_t c = range.first; c <= range.last; ++c)
        table[c] = static_cast<uint8_t>((table[c] & ~cleared) | added);
  };
  set(spaces, kindBits, static_cast<uint8_t>(CharClass::space));
  set(letters16, kindBits, letterKind | wordBit);
  set(digits16, kindBits, numberKind | wordBit);
  set(marks16, 0, wordBit);
  set(wordSymbols, 0, wordBit);
  set(formerPunctuation, 0, punctuationBit);
  set(punctuationSince8, punctuationBit, 0);
}

UnicodeClasses::Found UnicodeClasses::at(std::string_view text, size_t position) const {
  DecodedChar found = decodeUtf8(text, position);
  return {found.isValid ? of(found.codePoint) : CharClass::other, found.bytes};
}

bool UnicodeClasses::isWordAt(std::string_view text, size_t position) const {
  DecodedChar found = decodeUtf8(text, position);
  return found.isValid && isWord(found.codePoint);
}

const UnicodeClasses &unicodeClasses() {
  static const UnicodeClasses classes;
  return classes;
}

} // namespace espalier::rt
