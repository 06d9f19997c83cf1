// Splits a template into tokens as jinja2 does with trim_blocks and lstrip_blocks, which transformers sets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt::jinja {

enum class TokenKind {
  Data,
  VariableBegin,
  VariableEnd,
  BlockBegin,
  BlockEnd,
  Name,
  String,
  Integer,
  Float,
  Operator,
  End
};

struct Token {
  TokenKind kind;
  std::string text; ///< of a string: its value
  int line;
};

/// Returns the tokens of a template. The last one is End. Throws Fault, and sets `line` to its line.
std::vector<Token> tokenize(std::string_view source, int &line);

} // namespace espalier::rt::jinja
