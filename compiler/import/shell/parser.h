// Parses a bash script into a syntax tree.
#pragma once

#include "compiler/import/shell/word_reader.h"

#include <memory>
#include <string>
#include <vector>

namespace espalier::shell {

/// Reads the commands of a script. Throws a Fault where bash would report a syntax error.
class Parser : WordReader {
public:
  explicit Parser(const Text &input) : WordReader(input) {}

  /// Returns the whole script as a list.
  Node parse();

private:
  /// Reads commands up to one of the words or signs `ends`, which stays.
  Node readList(const std::vector<std::string_view> &ends);
  Node readChain();
  Node readPipe();
  Node readCommand();
  Node readIf();
  Node readLoop();
  Node readFor();
  Node readCase();
  Node readDefinition(std::string name);
  Node readSimple();
  Node readCalculation();

  Node readCondition(); ///< of [[ ]]: operands joined by ||
  Node readBoth();
  Node readOperand();
  Word readConditionWord();

  /// Adds an assignment that stands at the cursor.
  bool readAssignment(Node &command);
  void readElements(Assignment &assignment);
  /// Skips a redirection that stands at the cursor. Keeps its here-document or here-string.
  bool readRedirection(Node &command);
  void readRedirections(Node &command);
  void readDocuments();

  /// Skips blanks, comments and ends of lines, and reads here-documents behind them.
  void skipLines();
  void skipComment();
  /// Returns the reserved word or name at the cursor, or an empty text.
  std::string_view peekName() const;
  bool takeName(std::string_view name);
  void expect(std::string_view name, const Place &open, std::string_view of);
  Node makeNode(Node::Kind kind, const Place &at);
  [[noreturn]] void refuse() const;

  struct Document {
    std::string end;
    bool isIndented = false, isLiteral = false;
    std::shared_ptr<Word> content;
  };
  std::vector<Document> documents; ///< those whose text follows the current line
};

} // namespace espalier::shell
