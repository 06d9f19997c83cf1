#include "tools/ptx/lexer.h"

#include "tools/ptx/syntax.h"

#include <algorithm>
#include <cctype>

namespace espalier::ptx {
namespace {

bool isWordStart(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '.';
}
bool isWordPart(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '.'; }

class Lexer {
public:
  explicit Lexer(std::string_view text) : text(text) {}

  std::vector<Token> run() {
    while (skipBlanks(), at < text.size())
      tokens.push_back(read());
    tokens.push_back({Token::Kind::end, "end of text", line});
    return std::move(tokens);
  }

private:
  std::string_view text;
  size_t at = 0;
  uint32_t line = 1;
  std::vector<Token> tokens;

  bool startsWith(std::string_view prefix) const { return text.substr(at).starts_with(prefix); }

  void skipBlanks() {
    while (at < text.size()) {
      if (startsWith("//")) {
        at = std::min(text.find('\n', at), text.size());
      } else if (startsWith("/*")) {
        size_t end = text.find("*/", at + 2);
        if (end == std::string_view::npos)
          throw SyntaxError("", line, "comment without end");
        for (; at < end + 2; ++at)
          line += text[at] == '\n';
      } else if (std::isspace(static_cast<unsigned char>(text[at])) || text[at] == '\0') {
        line += text[at++] == '\n';
      } else {
        return;
      }
    }
  }

  Token read() {
    size_t begin = at;
    char first = text[at];
    auto token = [&](Token::Kind kind) { return Token{kind, text.substr(begin, at - begin), line}; };
    if (std::isdigit(static_cast<unsigned char>(first))) {
      while (at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '.'))
        ++at;
      return token(Token::Kind::number);
    }
    if (isWordStart(first)) {
      // "::" joins the words of modifiers such as .shared::cta.
      for (++at;
           at < text.size() && (isWordPart(text[at]) || startsWith("::") || (text[at] == ':' && text[at - 1] == ':'));)
        ++at;
      return token(Token::Kind::word);
    }
    if (first == '"') {
      size_t end = text.find('"', at + 1);
      if (end == std::string_view::npos)
        throw SyntaxError("", line, "string without end");
      at = end + 1;
      return token(Token::Kind::string);
    }
    ++at;
    return token(Token::Kind::punctuation);
  }
};

} // namespace

std::vector<Token> readTokens(std::string_view text) { return Lexer(text).run(); }

} // namespace espalier::ptx
