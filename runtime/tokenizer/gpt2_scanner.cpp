// Every alternative of the pattern matches a run of one class. Only the alternatives for white space look ahead.
#include "runtime/tokenizer/gpt2_scanner.h"

namespace espalier::rt {

namespace {

/// Returns the length in bytes of the contraction at the apostrophe at `position`, or 0. Only lower case matches.
size_t contraction(std::string_view text, size_t position) {
  if (position + 1 >= text.size())
    return 0;
  char first = text[position + 1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd')
    return 2;
  if (position + 2 >= text.size())
    return 0;
  char second = text[position + 2];
  bool isPair = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
  return isPair ? 3 : 0;
}

} // namespace

Gpt2Scanner::Gpt2Scanner() {
  for (char32_t c = 0; c < 128; ++c)
    ascii[c] = classes.of(c);
}

size_t Gpt2Scanner::runEnd(std::string_view text, size_t position, CharClass kind) const {
  while (position < text.size()) {
    UnicodeClasses::Found found = classAt(text, position);
    if (found.kind != kind)
      break;
    position += found.bytes;
  }
  return position;
}

size_t Gpt2Scanner::spaceEnd(std::string_view text, size_t position) const {
  size_t end = position, last = position;
  while (end < text.size()) {
    UnicodeClasses::Found found = classAt(text, end);
    if (found.kind != CharClass::space)
      break;
    last = end;
    end += found.bytes;
  }
  // \s+(?!\S): a run of spaces before other text leaves its last character to that text, unless the run is one
  // character.
  return end == text.size() || last == position ? end : last;
}

size_t Gpt2Scanner::pieceEnd(std::string_view text, size_t position) const {
  char lead = text[position];
  if (lead == '\'')
    if (size_t length = contraction(text, position))
      return position + length;
  UnicodeClasses::Found found = classAt(text, position);
  if (lead == ' ' && position + 1 < text.size()) {
    UnicodeClasses::Found next = classAt(text, position + 1);
    if (next.kind != CharClass::space)
      return runEnd(text, position + 1 + next.bytes, next.kind);
  }
  if (found.kind == CharClass::space)
    return spaceEnd(text, position);
  return runEnd(text, position + found.bytes, found.kind);
}

} // namespace espalier::rt
