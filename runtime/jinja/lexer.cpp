#include "runtime/jinja/lexer.h"

#include "runtime/jinja/run.h"
#include "runtime/jinja/text.h"
#include "runtime/utf8.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>

namespace espalier::rt::jinja {

namespace {

bool isDecimal(char c) { return c >= '0' && c <= '9'; }
bool isHex(char c) { return isDecimal(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/// Returns the text with \n for each line end, without the last line end.
std::string normalized(std::string_view source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i)
    if (source[i] != '\r')
      text += source[i];
    else if (i + 1 >= source.size() || source[i + 1] != '\n')
      text += '\n';
  if (text.ends_with('\n'))
    text.pop_back();
  return text;
}

class Lexer {
public:
  Lexer(std::string_view source, int &line) : text(normalized(source)), line(line) {}

  std::vector<Token> run() {
    while (at < text.size())
      lexRoot();
    add(TokenKind::End, "");
    return std::move(tokens);
  }

private:
  std::string_view rest() const { return std::string_view(text).substr(at); }
  char peek(size_t more = 0) const { return at + more < text.size() ? text[at + more] : '\0'; }
  void add(TokenKind kind, std::string value) { tokens.push_back({kind, std::move(value), line}); }
  void advance(size_t bytes) {
    line += static_cast<int>(std::count(text.begin() + static_cast<std::ptrdiff_t>(at),
                                        text.begin() + static_cast<std::ptrdiff_t>(at + bytes), '\n'));
    at += bytes;
    startsLine = bytes > 0 ? text[at - 1] == '\n' : startsLine;
  }
  void skipSpace() { advance(rest().size() - stripped(rest(), Side::Left).size()); }

  /// Adds the text before a tag, without the white space that the tag removes. `sign` is the character after the tag's
  /// start.
  void addData(std::string_view data, char sign, bool isVariable) {
    if (sign == '-') {
      data = stripped(data, Side::Right);
    } else if (sign != '+' && !isVariable) {
      size_t begin = data.rfind('\n') + 1; // 0 if there is none
      bool isBlank = begin < data.size() && stripped(data.substr(begin), Side::Left).empty();
      if (isBlank && (begin > 0 || startsLine))
        data = data.substr(0, begin);
    }
    if (!data.empty())
      add(TokenKind::Data, std::string(data));
  }

  /// Reads the end of a tag: `-}` removes white space, and the end of a block also removes one line end.
  bool skipEnd(std::string_view end, bool trims) {
    bool hasMinus = peek() == '-' && rest().substr(1).starts_with(end);
    bool hasPlus = trims && peek() == '+' && rest().substr(1).starts_with(end);
    if (!hasMinus && !hasPlus && !rest().starts_with(end))
      return false;
    advance(end.size() + (hasMinus || hasPlus));
    if (hasMinus)
      skipSpace();
    else if (trims && !hasPlus && peek() == '\n')
      advance(1);
    return true;
  }

  void lexRoot() {
    size_t begin = at, tag = text.find('{', at);
    while (tag != std::string::npos && tag + 1 < text.size() && text[tag + 1] != '{' && text[tag + 1] != '%' &&
           text[tag + 1] != '#')
      tag = text.find('{', tag + 1);
    if (tag == std::string::npos || tag + 1 >= text.size()) {
      add(TokenKind::Data, text.substr(begin));
      return advance(text.size() - begin);
    }
    char kind = text[tag + 1], sign = tag + 2 < text.size() ? text[tag + 2] : '\0';
    bool hasSign = sign == '-' || sign == '+';
    addData(std::string_view(text).substr(begin, tag - begin), sign, kind == '{');
    advance(tag + 2 + hasSign - begin);
    if (kind == '#')
      return skipComment();
    if (kind == '%' && skipRaw())
      return;
    add(kind == '{' ? TokenKind::VariableBegin : TokenKind::BlockBegin, "");
    std::string_view end = kind == '{' ? "}}" : "%}";
    for (std::string open;;) { // brackets that are open
      skipSpace();
      if (at >= text.size())
        return;
      if (open.empty() && skipEnd(end, kind == '%'))
        break;
      lexToken(open);
    }
    add(kind == '{' ? TokenKind::VariableEnd : TokenKind::BlockEnd, "");
  }

  void skipComment() {
    for (; at < text.size(); advance(1))
      if (skipEnd("#}", /*trims=*/true))
        return;
    throw Fault("a comment has no end");
  }

  /// Reads `raw %}...{% endraw %}` at the start of a block. Returns false for another block.
  bool skipRaw() {
    std::string_view inside = stripped(rest(), Side::Left);
    if (!inside.starts_with("raw"))
      return false;
    std::string_view end = stripped(inside.substr(3), Side::Left);
    bool trims = end.starts_with("-%}");
    if (!trims && !end.starts_with("%}"))
      return false;
    advance(text.size() - at - end.size() + (trims ? 3 : 2));
    if (trims)
      skipSpace();
    for (size_t begin = at, tag = text.find("{%", at); tag != std::string::npos; tag = text.find("{%", tag + 1)) {
      char sign = tag + 2 < text.size() ? text[tag + 2] : '\0';
      std::string_view name = std::string_view(text).substr(tag + 2 + (sign == '-' || sign == '+'));
      name = stripped(name, Side::Left);
      if (!name.starts_with("endraw"))
        continue;
      std::string_view close = stripped(name.substr(6), Side::Left);
      if (!close.starts_with("%}") && !close.starts_with("-%}") && !close.starts_with("+%}"))
        continue;
      addData(std::string_view(text).substr(begin, tag - begin), sign, /*isVariable=*/false);
      advance(text.size() - close.size() - at);
      return skipEnd("%}", /*trims=*/true);
    }
    throw Fault("a raw block has no end");
  }

  void lexToken(std::string &open) {
    char c = peek();
    if (isDecimal(c))
      return lexNumber();
    if (c == '\'' || c == '"')
      return lexString(c);
    size_t end = at;
    while (end < text.size()) {
      DecodedChar one = decodeUtf8(text, end);
      if (one.codePoint != '_' && !isLetter(one.codePoint) && !isDigit(one.codePoint))
        break;
      end += one.bytes;
    }
    if (end > at) {
      add(TokenKind::Name, text.substr(at, end - at));
      return advance(end - at);
    }
    constexpr std::array operators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                      "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto *found = std::ranges::find_if(operators, [&](const char *one) { return rest().starts_with(one); });
    if (found == operators.end())
      throw Fault(fmt::format("unexpected character {}", reprOfText(rest().substr(0, afterCharacters(rest(), 0, 1)))));
    std::string symbol = *found;
    if (symbol == "{" || symbol == "(" || symbol == "[")
      open += symbol == "{" ? '}' : symbol == "(" ? ')' : ']';
    if (symbol == "}" || symbol == ")" || symbol == "]") {
      if (open.empty() || open.back() != symbol[0])
        throw Fault(fmt::format("unexpected '{}'", symbol));
      open.pop_back();
    }
    add(TokenKind::Operator, symbol);
    advance(symbol.size());
  }

  /// Returns the end of digits from `from`, with single underscores between them.
  template <typename Is> size_t digits(size_t from, Is is) const {
    size_t end = from;
    while (end < text.size() &&
           (is(text[end]) || (text[end] == '_' && end > from && end + 1 < text.size() && is(text[end + 1]))))
      ++end;
    return end;
  }

  void lexNumber() {
    std::string_view prefix = rest().substr(0, 2);
    size_t end = at;
    bool isFloat = false;
    if (prefix == "0x" || prefix == "0X") {
      end = digits(at + 2, isHex);
    } else if (prefix == "0b" || prefix == "0B") {
      end = digits(at + 2, [](char c) { return c == '0' || c == '1'; });
    } else if (prefix == "0o" || prefix == "0O") {
      end = digits(at + 2, [](char c) { return c >= '0' && c <= '7'; });
    } else {
      end = digits(at, isDecimal);
      auto after = [&](size_t k) { return k < text.size() ? text[k] : '\0'; };
      bool followsDot = at > 0 && text[at - 1] == '.';
      if (!followsDot && after(end) == '.' && isDecimal(after(end + 1))) {
        end = digits(end + 1, isDecimal);
        isFloat = true;
      }
      size_t exponent = end + 1 + (after(end + 1) == '+' || after(end + 1) == '-');
      if (!followsDot && (after(end) == 'e' || after(end) == 'E') && isDecimal(after(exponent))) {
        end = digits(exponent, isDecimal);
        isFloat = true;
      }
      if (!isFloat && text[at] == '0')
        end = digits(at, [](char c) { return c == '0'; });
    }
    std::string number = text.substr(at, end - at);
    std::erase(number, '_');
    add(isFloat ? TokenKind::Float : TokenKind::Integer, std::move(number));
    advance(end - at);
  }

  void lexString(char quote) {
    size_t end = at + 1;
    while (end < text.size() && text[end] != quote)
      end += text[end] == '\\' ? 2 : 1;
    if (end >= text.size())
      throw Fault("a string has no end");
    add(TokenKind::String, unescaped(std::string_view(text).substr(at + 1, end - at - 1)));
    advance(end + 1 - at);
  }

  static std::string unescaped(std::string_view raw) {
    constexpr std::string_view letters = "\\'\"abfnrtv", meanings = "\\'\"\a\b\f\n\r\t\v";
    std::string value;
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\' || i + 1 >= raw.size()) {
        value += raw[i];
        continue;
      }
      char letter = raw[++i];
      size_t hex = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
      if (hex > 0 || (letter >= '0' && letter <= '7')) {
        size_t first = hex > 0 ? i + 1 : i, last = first;
        while (last < raw.size() && last < first + (hex > 0 ? hex : 3) &&
               (hex > 0 ? isHex(raw[last]) : raw[last] >= '0' && raw[last] <= '7'))
          ++last;
        uint32_t code = 0;
        std::from_chars(raw.data() + first, raw.data() + last, code, hex > 0 ? 16 : 8);
        if ((hex > 0 && last < first + hex) || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
          throw Fault(fmt::format("a string has the escape \\{}, which is no character", letter));
        appendUtf8(code, value);
        i = last - 1;
      } else if (size_t found = letters.find(letter); found != std::string_view::npos) {
        value += meanings[found];
      } else if (letter == 'N') {
        throw Fault("a string has the escape \\N, which is not supported; write the character itself");
      } else if (letter != '\n') {
        value += {'\\', letter};
      }
    }
    return value;
  }

  const std::string text;
  int &line;
  size_t at = 0;
  bool startsLine = true;
  std::vector<Token> tokens;
};

} // namespace

std::vector<Token> tokenize(std::string_view source, int &line) {
  line = 1;
  return Lexer(source, line).run();
}

} // namespace espalier::rt::jinja
