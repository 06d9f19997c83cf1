#include "compiler/import/shell/word_reader.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>

namespace espalier::shell {

namespace {

bool isDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

} // namespace

bool isNameChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool isName(std::string_view text) {
  return !text.empty() && !isDigit(text[0]) && std::all_of(text.begin(), text.end(), isNameChar);
}

WordReader::Level::Level(WordReader &reader) : reader(reader) {
  if (++reader.depth > mostDepth)
    throw Fault(reader.place(), fmt::format("commands and expansions are nested deeper than {} levels", mostDepth));
}

void WordReader::count() {
  if (++parts > mostParts)
    throw Fault(place(), fmt::format("the script has more than {} commands and parts of words", mostParts));
}

bool WordReader::take(std::string_view text) {
  if (!startsWith(text))
    return false;
  at += text.size();
  return true;
}

void WordReader::skipBlanks() {
  while (!isAtEnd() && (peek() == ' ' || peek() == '\t' || startsWith("\\\n")))
    at += peek() == '\\' ? 2 : 1;
}

size_t WordReader::placeholderLength() const {
  if (peek() != '<' || std::isalpha(static_cast<unsigned char>(peek(1))) == 0)
    return 0;
  size_t length = 1;
  while (isNameChar(peek(length)) || peek(length) == '-' || peek(length) == '/' || peek(length) == '.' ||
         peek(length) == ' ')
    ++length;
  bool isClosed = peek(length) == '>' && peek(length - 1) != ' ';
  return isClosed ? length + 1 : 0;
}

void WordReader::addLiteral(Word &word, size_t end, bool isQuoted) {
  if (word.empty() || word.back().kind != Part::Literal || word.back().isQuoted != isQuoted) {
    count();
    word.emplace_back();
    word.back().isQuoted = isQuoted;
    word.back().place = place();
  }
  word.back().text.append(input, at, end);
  at = std::min(end, input.size());
}

Word WordReader::readAllQuoted() { return readParts("", Mode::Document); }

Word WordReader::readParts(std::string_view ends, Mode mode) {
  Level level(*this);
  Word word;
  auto isEscaped = [&](char c) { // a backslash quotes the character
    switch (mode) {
    case Mode::Plain:
      return true;
    case Mode::Quoted:
    case Mode::QuotedOperand:
      return c == '$' || c == '`' || c == '"' || c == '\\' || (c == '}' && mode == Mode::QuotedOperand);
    case Mode::Document:
      return c == '$' || c == '`' || c == '\\';
    }
    return false;
  };
  while (!isAtEnd()) {
    char c = peek();
    bool isPlain = mode == Mode::Plain;
    if (startsWith("\\\n")) {
      at += 2;
    } else if (c == '\\' && at + 1 < input.size() && isEscaped(peek(1))) {
      ++at;
      addLiteral(word, at + 1, /*isQuoted=*/true);
    } else if (c == '\'' && isPlain) {
      readSingleQuoted(word);
    } else if (c == '"' && (isPlain || mode == Mode::QuotedOperand)) {
      readDoubleQuoted(word);
    } else if (isPlain && startsWith("$'")) {
      readDollarQuoted(word);
    } else if (c == '$' || c == '`') {
      readExpansion(word, !isPlain);
    } else if (size_t length = isPlain ? placeholderLength() : 0) {
      addLiteral(word, at + length, /*isQuoted=*/true);
    } else if (isPlain && (c == '<' || c == '>') && peek(1) == '(' && ends.find(c) != std::string_view::npos) {
      word.push_back({.kind = Part::Command, .place = place()});
      readCommand(word.back(), at);
    } else if (isPlain && peek(1) == '(' && std::string_view("@!?+*").find(c) != std::string_view::npos) {
      size_t begin = at; // an extended pattern: its signs belong to the word
      Part skipped;
      readCommand(skipped, begin);
      std::swap(begin, at);
      addLiteral(word, begin, /*isQuoted=*/false);
    } else if (ends.find(c) != std::string_view::npos) {
      break;
    } else {
      addLiteral(word, at + 1, !isPlain);
    }
  }
  return word;
}

void WordReader::readSingleQuoted(Word &word) {
  Place open = place();
  size_t end = input.bytes().find('\'', ++at);
  if (end == std::string::npos)
    throw Fault(open, "this quote is not closed");
  addLiteral(word, end, /*isQuoted=*/true); // "" is also a word
  ++at;
}

void WordReader::readDoubleQuoted(Word &word) {
  Place open = place();
  ++at;
  Word inside = readParts("\"", Mode::Quoted);
  if (isAtEnd())
    throw Fault(open, "this quote is not closed");
  if (inside.empty())
    addLiteral(inside, at, /*isQuoted=*/true);
  ++at;
  std::move(inside.begin(), inside.end(), std::back_inserter(word));
}

void WordReader::readDollarQuoted(Word &word) {
  Place open = place();
  at += 2;
  addLiteral(word, at, /*isQuoted=*/true);
  while (peek() != '\'') {
    if (isAtEnd())
      throw Fault(open, "this quote is not closed");
    if (peek() != '\\') {
      addLiteral(word, at + 1, /*isQuoted=*/true);
      continue;
    }
    constexpr std::string_view letters = "ntrabefv", meanings = "\n\t\r\a\b\x1b\f\v";
    size_t found = letters.find(peek(1));
    if (found == std::string_view::npos) { // \' \" \\ and \?
      ++at;
      addLiteral(word, at + 1, /*isQuoted=*/true);
    } else {
      word.back().text.append(Text(meanings.substr(found, 1), place()));
      at += 2;
    }
  }
  ++at;
}

size_t WordReader::endOfArithmetic(size_t begin) const {
  int parentheses = 0;
  for (size_t i = begin; i < std::min(input.size(), begin + 4096); ++i) {
    parentheses += (input[i] == '(') - (input[i] == ')');
    if (parentheses < 0)
      return input[i + 1] == ')' ? i + 2 : std::string::npos;
  }
  return std::string::npos;
}

void WordReader::readExpansion(Word &word, bool isQuoted) {
  Level level(*this);
  count();
  Part part{.kind = Part::Parameter, .isQuoted = isQuoted, .place = place()};
  size_t begin = at;
  if (take("$((")) {
    if (size_t end = endOfArithmetic(at); end != std::string::npos) {
      part.kind = Part::Arithmetic;
      Text inside = input.slice(at, end - 2);
      part.operands.push_back(WordReader(inside, depth).readAllQuoted());
      part.text = input.slice(begin, end);
      at = end;
      word.push_back(std::move(part));
      return;
    }
    at = begin;
  }
  if (startsWith("$(") || startsWith("`")) {
    part.kind = Part::Command;
    readCommand(part, begin);
  } else if (take("${")) {
    readBraces(part);
  } else {
    ++at;
    part.name = readParameterName();
    if (part.name.empty()) { // a dollar sign
      at = begin;
      return isQuoted || peek(1) != '"' ? addLiteral(word, at + 1, isQuoted) : void(++at); // $"text" is translated
    }
    if (part.name == "@" || part.name == "*")
      part.index = part.name;
  }
  word.push_back(std::move(part));
}

void WordReader::readCommand(Part &part, size_t begin) {
  Place open = place();
  if (take("`")) {
    while (!isAtEnd() && peek() != '`')
      at += peek() == '\\' ? 2 : 1;
  } else {
    ++at;
    for (int parentheses = 0; !isAtEnd(); ++at) {
      char c = peek();
      Word skipped;
      if (c == '\\')
        ++at;
      else if (c == '\'' || c == '"') {
        c == '"' ? readDoubleQuoted(skipped) : readSingleQuoted(skipped);
        --at;
      } else if (c == '#' && std::isspace(static_cast<unsigned char>(input[at - 1])) != 0)
        at = std::min(input.bytes().find('\n', at), input.size()) - 1;
      parentheses += (c == '(') - (c == ')');
      if (parentheses == 0)
        break;
    }
  }
  if (isAtEnd())
    throw Fault(open, "this bracket is not closed");
  part.text = input.slice(begin, ++at);
}

std::string WordReader::readParameterName() {
  size_t begin = at;
  if (isDigit(peek()) || (!isAtEnd() && std::string_view("@*#?$!-").find(peek()) != std::string_view::npos))
    ++at;
  else
    while (!isAtEnd() && isNameChar(peek()))
      ++at;
  return input.bytes().substr(begin, at - begin);
}

void WordReader::readBraces(Part &part) {
  bool isLength = peek() == '#' && peek(1) != '}', isIndirect = peek() == '!' && peek(1) != '}';
  at += isLength || isIndirect;
  if (isDigit(peek()))
    while (isDigit(peek()))
      part.name += input[at++];
  else
    part.name = readParameterName();
  if (peek() == '[')
    readSubscript(part);
  else if (part.name == "@" || part.name == "*")
    part.index = part.name;
  if (isLength || isIndirect) {
    bool areKeys = isIndirect && (part.index == "@" || part.index == "*");
    part.operation = isLength ? "length" : areKeys ? "keys" : "indirect";
  }
  if (peek() != '}')
    readOperation(part);
  if (!take("}"))
    throw Fault(part.place, isAtEnd() ? "this bracket is not closed" : "this expansion is not one of bash");
}

void WordReader::readSubscript(Part &part) {
  ++at;
  if ((peek() == '@' || peek() == '*') && peek(1) == ']') {
    part.index = input.bytes().substr(at, 1);
    ++at;
  } else {
    part.index = "=";
    part.subscript = readIndex();
  }
  if (!take("]"))
    throw Fault(part.place, "this bracket is not closed");
}

void WordReader::readOperation(Part &part) {
  bool isIndirect = part.operation == "indirect";
  for (const char *sign :
       {":-", ":=", ":+", ":?", "-", "=", "+", "?", "##", "#", "%%", "%", "//", "/", "^^", "^", ",,", ",", "@", ":"})
    if (take(sign)) {
      part.operation = sign;
      break;
    }
  if (part.operation.empty() || part.operation == "length" || part.operation == "keys")
    return;
  if (isIndirect) // only ${!NAME} and the keys of an array have one
    part.operation = "indirect with an operation";
  bool isText =
      part.operation.size() <= 2 && std::string_view("-=+?").find(part.operation.back()) != std::string_view::npos;
  bool isSlice = part.operation == ":", isReplacement = part.operation[0] == '/';
  Mode mode = part.isQuoted && isText ? Mode::QuotedOperand : Mode::Plain;
  part.operands.push_back(readParts(isSlice ? ":}" : isReplacement ? "/}" : "}", mode));
  if ((isSlice && take(":")) || (isReplacement && take("/")))
    part.operands.push_back(readParts("}", Mode::Plain));
}

} // namespace espalier::shell
