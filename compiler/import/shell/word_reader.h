// Reads the words of a script: quotes, expansions and what they contain.
#pragma once

#include "compiler/import/shell/syntax.h"

#include <stdexcept>
#include <string>
#include <string_view>

namespace espalier::shell {

/// A fault of a script. Ends its evaluation, because later faults would follow from the first.
struct Fault : std::runtime_error {
  Fault(const Place &place, const std::string &message) : std::runtime_error(message), place(place) {}
  Place place;
};

/// Return whether a character may stand in the name of a variable, and whether a text is such a name.
bool isNameChar(char c);
bool isName(std::string_view text);

/// A cursor over a script, with the rules of words.
class WordReader {
public:
  explicit WordReader(const Text &input, int depth = 0) : input(input), depth(depth) {}

  /// Reads all of the input as between double quotes: of a here-document, or of an arithmetic expression.
  Word readAllQuoted();

protected:
  char peek(size_t ahead = 0) const { return at + ahead < input.size() ? input[at + ahead] : '\n'; }
  bool isAtEnd() const { return at >= input.size(); }
  bool startsWith(std::string_view text) const { return input.bytes().compare(at, text.size(), text) == 0; }
  /// Moves the cursor behind `text` if it stands there.
  bool take(std::string_view text);
  Place place() const { return input.placeOf(at); }

  /// Counts a node of the syntax tree. The limit bounds the memory of the tree.
  void count();

  /// Skips blanks and continued lines.
  void skipBlanks();

  /// Returns the length of a placeholder such as <Specify path>, which the user must replace; 0 if there is none at the
  /// cursor. `a <b >c` contains none, because only a letter may precede the second sign.
  size_t placeholderLength() const;

  /// Reads a word up to an unquoted blank or a sign that ends a command. Returns an empty word if there is none.
  Word readWord() { return readParts(" \t\n;&|()<>", Mode::Plain); }

  /// Reads the index of an array element, up to its bracket.
  Word readIndex() { return readParts("]", Mode::Plain); }

  /// Returns the end of the arithmetic expression that begins at `begin`, behind its )); npos if one ) ends the text at
  /// `begin`, which then is a command, or if there is no end within 4096 characters.
  size_t endOfArithmetic(size_t begin) const;

  const Text &input;
  size_t at = 0;
  int depth = 0; ///< of nested constructs

  /// Counts nested constructs. Its destructor leaves the level.
  struct Level {
    Level(WordReader &reader);
    ~Level() { --reader.depth; }
    WordReader &reader;
  };

private:
  /// Quotes have different meanings: in a script, between double quotes, in an operand of an expansion between double
  /// quotes (where an apostrophe is a character), and in a here-document.
  enum class Mode { Plain, Quoted, QuotedOperand, Document };
  Word readParts(std::string_view ends, Mode mode);
  void readSingleQuoted(Word &word);
  void readDoubleQuoted(Word &word);
  void readDollarQuoted(Word &word);
  void readExpansion(Word &word, bool isQuoted);
  void readBraces(Part &part);
  void readOperation(Part &part);
  void readSubscript(Part &part);
  void readCommand(Part &part, size_t begin);
  std::string readParameterName();
  /// Adds the characters up to `end`, and moves the cursor there.
  void addLiteral(Word &word, size_t end, bool isQuoted);

  static constexpr int mostDepth = 32;
  static constexpr size_t mostParts = 200000;
  size_t parts = 0;
};

} // namespace espalier::shell
