// Reads the characters of a shell script: quotes, expansions and the words that they make up.
#pragma once

#include "compiler/import/yaml/diagnostics.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

/// The most bytes that are read, before and after expansion.
constexpr size_t mostScriptBytes = 1 << 20;

/// A character with its location. Text of variables keeps the locations of its assignment.
struct PlacedChar {
  char c = 0;
  int line = 1, column = 1;
  bool quoted = false; ///< the character does not end a word
};

/// A text of placed characters. `unknown` names the part that could not be expanded, or is empty.
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

/// Returns whether a character may stand in the name of a variable.
bool isNameChar(char c);

/// A cursor over a script, with the variables that the script has assigned so far.
class ShellReader {
protected:
  ShellReader(const std::string &file, std::string_view text, Diagnostics &diagnostics)
      : file(file), input(text), diagnostics(diagnostics) {}

  char peek(size_t ahead = 0) const { return at + ahead < input.size() ? input[at + ahead] : '\0'; }
  PlacedChar take();
  void skip(size_t count);

  /// Reports an error and ends the reading. Later errors follow from the first and are not reported.
  void fail(int atLine, int atColumn, std::string message);
  void failAsTooLong() { fail(line, column, "the script expands to more than 1 MiB"); }

  /// Limits the length of a text. Only expansion makes text grow, so each append is checked immediately.
  void bound(const PlacedText &text);

  /// Returns the length of a placeholder such as <Specify path>, which the user must replace; 0 if there is none at the
  /// cursor. `a <b >c` contains none, because only a letter may precede the second sign.
  size_t placeholderLength() const;

  /// Reads a word up to unquoted space or a sign that ends a command.
  PlacedText readWord();

  static constexpr char unknownMark = '\1', emptyMark = '\2';

  const std::string &file;
  std::string_view input;
  Diagnostics &diagnostics;
  size_t at = 0;
  int line = 1, column = 1;
  bool failed = false;
  std::map<std::string, PlacedText> variables;

private:
  void readQuoted(PlacedText &word);
  void markUnknown(PlacedText &word, const PlacedChar &place, std::string what);
  /// Returns the text between a bracket and its partner. The cursor must be at the opening bracket.
  std::string bracketed(char open, char close);
  void readExpansion(PlacedText &word, bool quoted);
  /// Returns the expansion of `text`, which has no word boundaries. All of it has one location.
  PlacedText expand(const std::string &text, const PlacedChar &place, bool quoted);
  void append(PlacedText &word, const PlacedText &more);
  /// Expands NAME, NAME[@], and with a default NAME-default and NAME=default. With a colon before the sign, an empty
  /// value counts as unset.
  void parameter(PlacedText &word, const PlacedChar &place, const std::string &inside, bool quoted);
  void arithmetic(PlacedText &word, const PlacedChar &place, const std::string &inside);

  static constexpr int mostDepth = 32;
  int depth = 0; ///< nesting of expansions in defaults
};

} // namespace espalier
