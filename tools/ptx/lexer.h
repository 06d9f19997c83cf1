// Splits PTX text into tokens.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace espalier::ptx {

/// A word, number, string or character of a text.
struct Token {
  enum class Kind : uint8_t { word, number, string, punctuation, end };
  Kind kind;
  std::string_view text; ///< a word includes dots and a leading '%', '.' or '$': "add.f32", "%r1", ".reg", "$L__BB0_2"
  uint32_t line;
  bool is(std::string_view wanted) const { return text == wanted && kind != Kind::string; }
};

/// Returns all tokens, followed by an end token. Comments are skipped. Throws SyntaxError.
std::vector<Token> readTokens(std::string_view text);

} // namespace espalier::ptx
