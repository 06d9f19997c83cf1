#include "compiler/import/megatron/shell_words.h"

#include "compiler/import/megatron/shell_reader.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <utility>

namespace espalier {

namespace {

/// Splits a script into commands and keeps its assignments.
class ShellScanner : ShellReader {
public:
  ShellScanner(const std::string &file, std::string_view text, Diagnostics &diagnostics)
      : ShellReader(file, text, diagnostics) {}

  std::vector<ShellCommand> run() {
    while (at < input.size() && !failed)
      readPart();
    endCommand();
    return std::move(commands);
  }

private:
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
    if ((expanded += text.chars.size()) > mostScriptBytes)
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

  size_t expanded = 0; ///< characters of all words
  bool isWarned = false;
  bool isConditional = false;                              ///< after && or ||
  std::vector<std::pair<std::string, bool>> hereDocuments; ///< end lines, and whether tabs may precede them
  ShellCommand command;
  std::vector<ShellCommand> commands;
};

} // namespace

std::vector<ShellCommand> readShell(const std::string &file, std::string_view text, Diagnostics &diagnostics) {
  if (text.size() > mostScriptBytes) {
    diagnostics.error({file, 0, 0}, fmt::format("{} bytes, at most {} are read", text.size(), mostScriptBytes));
    return {};
  }
  diagnostics.addSource(file, text);
  return ShellScanner(file, text, diagnostics).run();
}

} // namespace espalier
