#include "compiler/import/megatron/shell_reader.h"

#include "compiler/import/model/expression.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <tuple>

namespace espalier {

bool isNameChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

PlacedChar ShellReader::take() {
  PlacedChar taken{input[at++], line, column, false};
  ++column;
  if (taken.c == '\n') {
    ++line;
    column = 1;
  }
  return taken;
}

void ShellReader::skip(size_t count) {
  for (size_t i = 0; i < count && at < input.size(); ++i)
    take();
}

void ShellReader::fail(int atLine, int atColumn, std::string message) {
  if (!failed)
    diagnostics.error({file, atLine, atColumn}, std::move(message));
  failed = true;
}

void ShellReader::bound(const PlacedText &text) {
  if (text.chars.size() > mostScriptBytes)
    failAsTooLong();
}

size_t ShellReader::placeholderLength() const {
  if (peek() != '<' || std::isalpha(static_cast<unsigned char>(peek(1))) == 0)
    return 0;
  size_t length = 1;
  while (isNameChar(peek(length)) || peek(length) == '-' || peek(length) == '/' || peek(length) == '.' ||
         peek(length) == ' ')
    ++length;
  bool isClosed = peek(length) == '>' && peek(length - 1) != ' ';
  return isClosed ? length + 1 : 0;
}

PlacedText ShellReader::readWord() {
  PlacedText word;
  size_t before = at;
  while (at < input.size() && !failed) {
    char c = peek();
    if (std::isspace(static_cast<unsigned char>(c)) || c == ';' || c == '&' || c == '|' || c == '(' || c == ')')
      break;
    if (c == '\\') {
      skip(1);
      if (peek() == '\n')
        break;
      if (at < input.size())
        word.chars.push_back(take());
    } else if (c == '\'' || c == '"') {
      readQuoted(word);
    } else if (c == '$' || c == '`') {
      readExpansion(word, /*quoted=*/false);
    } else if (size_t length = placeholderLength()) {
      while (length-- > 0) {
        word.chars.push_back(take());
        word.chars.back().quoted = true;
      }
    } else {
      word.chars.push_back(take());
    }
  }
  if (at == before && at < input.size()) // skips a character without meaning here
    take();
  return word;
}

void ShellReader::readQuoted(PlacedText &word) {
  PlacedChar quote = take();
  PlacedChar empty = quote;
  empty.c = emptyMark; // "" is also a word
  word.chars.push_back(empty);
  while (at < input.size() && peek() != quote.c && !failed) {
    if (quote.c == '"' && peek() == '\\' && peek(1) == '\n') {
      skip(2);
      continue;
    }
    if (quote.c == '"' && peek() == '\\' && (peek(1) == '"' || peek(1) == '\\' || peek(1) == '$'))
      skip(1);
    else if (quote.c == '"' && (peek() == '$' || peek() == '`')) {
      readExpansion(word, /*quoted=*/true);
      continue;
    }
    word.chars.push_back(take());
    word.chars.back().quoted = true;
  }
  if (at >= input.size())
    fail(quote.line, quote.column, "this quote is not closed");
  skip(1);
}

void ShellReader::markUnknown(PlacedText &word, const PlacedChar &place, std::string what) {
  PlacedChar mark = place;
  mark.c = unknownMark;
  word.chars.push_back(mark);
  word.unknown = std::move(what);
}

std::string ShellReader::bracketed(char open, char close) {
  PlacedChar first = take();
  std::string inside;
  for (int depth = 1; at < input.size();) {
    char c = take().c;
    depth += (c == open) - (c == close);
    if (depth == 0)
      return inside;
    inside += c;
  }
  fail(first.line, first.column, "this bracket is not closed");
  return inside;
}

void ShellReader::readExpansion(PlacedText &word, bool quoted) {
  PlacedChar start = take();
  if (start.c == '`') {
    while (at < input.size() && peek() != '`')
      take();
    skip(1);
    return markUnknown(word, start, "a command in backticks");
  }
  if (peek() == '(' && peek(1) == '(') {
    std::string inside = bracketed('(', ')');
    return arithmetic(word, start, inside.substr(1, inside.size() < 2 ? 0 : inside.size() - 2));
  }
  if (peek() == '(') {
    bracketed('(', ')');
    return markUnknown(word, start, "the output of a command");
  }
  if (peek() == '{')
    return parameter(word, start, bracketed('{', '}'), quoted);
  std::string name;
  while (isNameChar(peek()) && (name.empty() || !std::isdigit(static_cast<unsigned char>(name[0]))))
    name += take().c;
  if (name.empty() && (peek() == '@' || peek() == '*')) {
    skip(1); // skips the caller's arguments
    return;
  }
  if (name.empty()) {
    word.chars.push_back(start);
    return;
  }
  parameter(word, start, name, quoted);
}

PlacedText ShellReader::expand(const std::string &text, const PlacedChar &place, bool quoted) {
  if (++depth > mostDepth)
    fail(place.line, place.column, fmt::format("expansions are nested deeper than {} levels", mostDepth));
  auto outer = std::tuple(input, at, line, column);
  std::tie(input, at, line, column) = std::tuple(std::string_view(text), size_t(0), place.line, place.column);
  PlacedText result;
  while (at < input.size() && !failed)
    if (peek() == '$' || peek() == '`')
      readExpansion(result, quoted);
    else if (peek() == '"' || peek() == '\'')
      readQuoted(result);
    else {
      result.chars.push_back(take());
      result.chars.back().quoted = quoted;
    }
  std::tie(input, at, line, column) = outer;
  --depth;
  for (PlacedChar &entry : result.chars)
    std::tie(entry.line, entry.column) = std::tuple(place.line, place.column);
  return result;
}

void ShellReader::append(PlacedText &word, const PlacedText &more) {
  word.chars.insert(word.chars.end(), more.chars.begin(), more.chars.end());
  if (!more.unknown.empty())
    word.unknown = more.unknown;
  bound(word);
}

void ShellReader::parameter(PlacedText &word, const PlacedChar &place, const std::string &inside, bool quoted) {
  size_t length = 0;
  while (length < inside.size() && isNameChar(inside[length]))
    ++length;
  std::string name = inside.substr(0, length), rest = inside.substr(length);
  bool isList = rest == "[@]" || rest == "[*]", replacesEmpty = rest.starts_with(":");
  size_t sign = replacesEmpty ? 1 : 0;
  bool hasDefault = rest.size() > sign && (rest[sign] == '-' || rest[sign] == '=');
  auto found = variables.find(name);
  bool isSet = found != variables.end();
  if (isSet && replacesEmpty)
    isSet = std::ranges::any_of(found->second.chars, [](const PlacedChar &entry) { return entry.c != emptyMark; });
  if (isSet && (rest.empty() || isList || hasDefault)) {
    PlacedText value = found->second;
    for (PlacedChar &entry : value.chars)
      entry.quoted = quoted && (entry.quoted || !isList); // a quoted list keeps its words separate
    if (!quoted) // unquoted: blanks separate words, and empty words are dropped
      std::erase_if(value.chars, [](const PlacedChar &entry) { return entry.c == emptyMark; });
    return append(word, value);
  }
  if (!hasDefault)
    return markUnknown(word, place, "$" + name);
  PlacedText value = expand(rest.substr(sign + 1), place, quoted);
  if (rest[sign] == '=')
    variables[name] = value;
  append(word, value);
}

void ShellReader::arithmetic(PlacedText &word, const PlacedChar &place, const std::string &inside) {
  PlacedText expanded = expand(inside, place, /*quoted=*/true);
  std::string text = expanded.text();
  std::erase(text, emptyMark);
  auto lookup = [&](const std::string &name, bool &known) {
    auto found = variables.find(name);
    known = found != variables.end();
    std::string digits = known ? found->second.text() : "";
    std::erase(digits, emptyMark);
    int64_t value = 0;
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    known = known && error == std::errc() && end == digits.data() + digits.size();
    return known ? std::optional(static_cast<double>(value)) : std::nullopt;
  };
  ExpressionValue result = evaluateExpression(text, lookup, Division::Whole);
  if (!expanded.unknown.empty() || !result.value || !result.fault.empty())
    return markUnknown(word, place, "$((" + inside + "))");
  for (char c : fmt::format("{:.0f}", std::trunc(*result.value)))
    word.chars.push_back({c, place.line, place.column, true});
}

} // namespace espalier
