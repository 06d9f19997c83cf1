#include "compiler/import/megatron/shell_words.h"

#include "compiler/import/model/expression.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <tuple>

namespace espalier {

namespace {

constexpr size_t mostBytes = 1 << 20;

/// A character with its location. Text of variables keeps the locations of its assignment.
struct PlacedChar {
  char c = 0;
  int line = 1, column = 1;
  bool quoted = false; ///< the character does not end a word
};

struct PlacedText {
  std::vector<PlacedChar> chars;
  std::string unknown;

  std::string text() const {
    std::string plain;
    for (const PlacedChar &entry : chars)
      plain += entry.c;
    return plain;
  }
};

bool isNameChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class ShellScanner {
public:
  ShellScanner(const std::string &file, std::string_view text, Diagnostics &diagnostics)
      : file(file), input(text), diagnostics(diagnostics) {}

  std::vector<ShellCommand> run() {
    while (at < input.size() && !failed)
      readPart();
    endCommand();
    return std::move(commands);
  }

private:
  char peek(size_t ahead = 0) const { return at + ahead < input.size() ? input[at + ahead] : '\0'; }

  PlacedChar take() {
    PlacedChar taken{input[at++], line, column, false};
    ++column;
    if (taken.c == '\n') {
      ++line;
      column = 1;
    }
    return taken;
  }

  void skip(size_t count) {
    for (size_t i = 0; i < count && at < input.size(); ++i)
      take();
  }

  void fail(int atLine, int atColumn, std::string message) {
    if (!failed)
      diagnostics.error({file, atLine, atColumn}, std::move(message));
    failed = true;
  }

  void failAsTooLong() { fail(line, column, "the script expands to more than 1 MiB"); }

  /// Limits the length of a text. Only expansion makes text grow, so each append is checked immediately.
  void bound(const PlacedText &text) {
    if (text.chars.size() > mostBytes)
      failAsTooLong();
  }

  void readPart() {
    char c = peek();
    if (c == '\\' && peek(1) == '\n')
      return skip(2);
    if (c == '\n' || c == ';' || c == '&' || c == '|' || c == '(' || c == ')') {
      isConditional = (c == '&' || c == '|') && (peek(1) == c || isConditional);
      take();
      if (c == '\n')
        skipHereDocuments();
      return endCommand();
    }
    if (std::isspace(static_cast<unsigned char>(c)))
      return skip(1);
    if (c == '#') {
      while (at < input.size() && peek() != '\n')
        take();
      return;
    }
    if (isRedirection())
      return skipRedirection();
    if (mayAssign() && readAssignment())
      return;
    append(readWord());
  }

  /// Returns whether the cursor is at a redirection (2>&1, >file or <file), which is not a word of the command.
  bool isRedirection() const {
    if (placeholderLength() > 0)
      return false;
    size_t digits = 0;
    while (std::isdigit(static_cast<unsigned char>(peek(digits))))
      ++digits;
    return peek(digits) == '>' || peek(digits) == '<';
  }

  /// Returns the length of a placeholder such as <Specify path>, which the user must replace; 0 if there is none at the
  /// cursor. `a <b >c` contains none, because only a letter may precede the second sign.
  size_t placeholderLength() const {
    if (peek() != '<' || std::isalpha(static_cast<unsigned char>(peek(1))) == 0)
      return 0;
    size_t length = 1;
    while (isNameChar(peek(length)) || peek(length) == '-' || peek(length) == '/' || peek(length) == '.' ||
           peek(length) == ' ')
      ++length;
    bool isClosed = peek(length) == '>' && peek(length - 1) != ' ';
    return isClosed ? length + 1 : 0;
  }

  void skipRedirection() {
    std::string sign;
    while (peek() == '>' || peek() == '<' || peek() == '&' || std::isdigit(static_cast<unsigned char>(peek())))
      sign += take().c;
    bool isHereDocument = sign.ends_with("<<") && !sign.ends_with("<<<"), isIndented = isHereDocument && peek() == '-';
    if (isIndented)
      take();
    while (peek() == ' ')
      take();
    std::string end = readWord().text();
    std::erase(end, emptyMark);
    if (isHereDocument)
      hereDocuments.push_back({end, isIndented});
  }

  /// Skips the lines after a command with <<END, up to the line END.
  void skipHereDocuments() {
    for (const auto &[end, isIndented] : hereDocuments)
      for (bool isEnd = false; at < input.size() && !isEnd;) {
        std::string read;
        while (at < input.size() && peek() != '\n')
          read += take().c;
        skip(1);
        isEnd = read.substr(isIndented ? std::min(read.find_first_not_of('\t'), read.size()) : 0) == end;
      }
    hereDocuments.clear();
  }

  void append(const PlacedText &text) {
    if (command.empty())
      warnOfControlFlow(text);
    split(text, command);
  }

  void warnOfControlFlow(const PlacedText &first) {
    static const std::vector<std::string> keywords = {"if", "for", "while", "until", "case", "function"};
    if (!first.chars.empty() && std::find(keywords.begin(), keywords.end(), first.text()) != keywords.end())
      warnOfControlFlow(first.chars[0].line, first.chars[0].column);
  }

  void warnOfControlFlow(int atLine, int atColumn) {
    if (!isWarned)
      diagnostics.warning({file, atLine, atColumn},
                          "control flow is not followed: every assignment counts, in the order of the file");
    isWarned = true;
  }

  /// Splits text into words at unquoted space. A word that contains an unknown part is unknown.
  void split(const PlacedText &text, ShellCommand &words) {
    ShellWord word;
    bool open = false;
    auto finish = [&] {
      if (open)
        words.push_back(word);
      word = {};
      open = false;
    };
    for (const PlacedChar &entry : text.chars) {
      if (!entry.quoted && std::isspace(static_cast<unsigned char>(entry.c))) {
        finish();
        continue;
      }
      if (!open || (word.text.empty() && entry.c != emptyMark))
        word.where = {file, entry.line, entry.column};
      open = true;
      if (entry.c == unknownMark)
        word.unknown = text.unknown;
      else if (entry.c != emptyMark)
        word.text += entry.c;
    }
    finish();
    if ((expanded += text.chars.size()) > mostBytes)
      failAsTooLong();
  }

  void endCommand() {
    if (!command.empty())
      commands.push_back(std::move(command));
    command.clear();
  }

  bool mayAssign() const {
    static const std::vector<std::string> declarers = {"export", "local", "readonly", "declare", "typeset"};
    return command.empty() || std::find(declarers.begin(), declarers.end(), command.front().text) != declarers.end();
  }

  /// Reads NAME=value, NAME=( words ), or either with +=. If there is none, returns false and reads nothing.
  bool readAssignment() {
    size_t length = 0;
    while (isNameChar(peek(length)))
      ++length;
    bool adds = peek(length) == '+' && peek(length + 1) == '=';
    if (length == 0 || std::isdigit(static_cast<unsigned char>(peek())) || (!adds && peek(length) != '='))
      return false;
    std::string name(input.substr(at, length));
    if (isConditional && command.empty()) // CONDITION && NAME=value
      warnOfControlFlow(line, column);
    skip(length + (adds ? 2 : 1));
    bool isList = peek() == '(';
    PlacedText value = isList ? readArray() : readWord();
    PlacedText &variable = variables[name];
    if (!adds)
      variable = {};
    if (isList && !variable.chars.empty())
      variable.chars.push_back({' ', line, column, false});
    variable.chars.insert(variable.chars.end(), value.chars.begin(), value.chars.end());
    if (!value.unknown.empty())
      variable.unknown = value.unknown;
    bound(variable);
    return true;
  }

  /// Reads the words between parentheses, joined by unquoted spaces.
  PlacedText readArray() {
    PlacedText all;
    PlacedChar open = take();
    while (at < input.size() && peek() != ')' && !failed) {
      if (peek() == '#') {
        while (at < input.size() && peek() != '\n')
          take();
      } else if (peek() == '\\' && peek(1) == '\n') {
        skip(2);
      } else if (std::isspace(static_cast<unsigned char>(peek()))) {
        take();
      } else {
        PlacedText word = readWord();
        all.chars.insert(all.chars.end(), word.chars.begin(), word.chars.end());
        all.chars.push_back({' ', line, column, false});
        bound(all);
        if (!word.unknown.empty())
          all.unknown = word.unknown;
      }
    }
    if (at >= input.size())
      fail(open.line, open.column, "this bracket is not closed");
    skip(1);
    return all;
  }

  PlacedText readWord() {
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

  void readQuoted(PlacedText &word) {
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

  void markUnknown(PlacedText &word, const PlacedChar &place, std::string what) {
    PlacedChar mark = place;
    mark.c = unknownMark;
    word.chars.push_back(mark);
    word.unknown = std::move(what);
  }

  /// Returns the text between a bracket and its partner. The cursor must be at the opening bracket.
  std::string bracketed(char open, char close) {
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

  void readExpansion(PlacedText &word, bool quoted) {
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

  /// Returns the expansion of `text`, which has no word boundaries. All of it has one location.
  PlacedText expand(const std::string &text, const PlacedChar &place, bool quoted) {
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

  void append(PlacedText &word, const PlacedText &more) {
    word.chars.insert(word.chars.end(), more.chars.begin(), more.chars.end());
    if (!more.unknown.empty())
      word.unknown = more.unknown;
    bound(word);
  }

  /// Expands NAME, NAME[@], and with a default NAME-default and NAME=default. With a colon before the sign, an empty
  /// value counts as unset.
  void parameter(PlacedText &word, const PlacedChar &place, const std::string &inside, bool quoted) {
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

  void arithmetic(PlacedText &word, const PlacedChar &place, const std::string &inside) {
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

  static constexpr char unknownMark = '\1', emptyMark = '\2';

  const std::string &file;
  std::string_view input;
  Diagnostics &diagnostics;
  size_t at = 0, expanded = 0;
  int line = 1, column = 1;
  static constexpr int mostDepth = 32;
  int depth = 0; ///< nesting of expansions in defaults
  bool failed = false, isWarned = false;
  bool isConditional = false;                              ///< after && or ||
  std::vector<std::pair<std::string, bool>> hereDocuments; ///< end lines, and whether tabs may precede them
  std::map<std::string, PlacedText> variables;
  ShellCommand command;
  std::vector<ShellCommand> commands;
};

} // namespace

std::vector<ShellCommand> readShell(const std::string &file, std::string_view text, Diagnostics &diagnostics) {
  if (text.size() > mostBytes) {
    diagnostics.error({file, 0, 0}, fmt::format("{} bytes, at most {} are read", text.size(), mostBytes));
    return {};
  }
  diagnostics.addSource(file, text);
  return ShellScanner(file, text, diagnostics).run();
}

} // namespace espalier
