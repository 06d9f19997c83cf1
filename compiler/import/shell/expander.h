// Expands the words of a script: parameters, arithmetic, word splitting and the removal of quotes.
#pragma once

#include "compiler/import/shell/budget.h"
#include "compiler/import/shell/pattern.h"
#include "compiler/import/shell/state.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::shell {

/// The state of a shell, and the expansion of words in it. Expansions may assign, as ${NAME:=WORD} does.
class Expander {
public:
  explicit Expander(std::map<std::string, std::string> given) : given(std::move(given)) {}

  /// Returns the fields of words: split, and without quotes.
  std::vector<Text> fieldsOf(const std::vector<Word> &words);
  /// Returns a word as one text, which is not split, as in an assignment.
  Text textOf(const Word &word);
  /// Returns a word as a pattern. Sets `unknown` if it holds unknown parts.
  Pattern patternOf(const Word &word, Cause &unknown);
  /// Splits a text as an unquoted expansion is split.
  std::vector<Text> split(const Text &text);

  /// Evaluates an expression. A fault gives an unknown value.
  int64_t evaluate(const Text &expression, const Place &place, Cause &unknown);

  void assign(const std::string &name, const Index &index, Text value);
  /// Returns a variable that may be changed. Creates it if it does not exist.
  Variable &variable(const std::string &name);
  /// Returns the index that a subscript stands for.
  Index indexOf(const std::string &name, const Text &subscript, const Place &place);

  Cause makeCause(std::string name, std::string remedy, const Place &place, bool isNotGiven = false) const;
  /// Returns the text with unknown parts named, and shortened.
  static std::string describe(const Text &text);

  State state;
  Budget budget;
  /// Variables that the script sets somewhere, but not from their own value. They are empty until then; others are
  /// unknown, because a user may give them.
  std::set<std::string> own;
  std::string assigning; ///< the variable that gets the value of the word that is expanded, or empty

private:
  enum class Mode { Fields, Text, Pattern };
  /// Collects the expansion of a word.
  struct Output {
    Mode mode;
    std::vector<Text> fields;
    Text current;
    bool isOpen = false; ///< there is a field, which may be empty
  };
  struct Values {
    std::vector<Text> list;
    bool isList = false;  ///< of NAME[@], which keeps its elements apart
    bool isStar = false;  ///< of NAME[*], whose elements are joined between quotes
    bool isUnset = false; ///< not even empty
    Cause unknownSize;
  };
  void expand(Output &output, const Word &word, bool isOperand);
  void expandParameter(Output &output, const Part &part);
  void add(Output &output, const Text &text, bool isQuoted);
  void addSplit(Output &output, const Text &text);
  void finish(Output &output);
  void addValues(Output &output, const Part &part, Values values);

  Values valuesOf(const Part &part);
  Values valuesOf(const std::string &name, const std::string &index, const Word &subscript, const Place &place);
  Values argumentsOf(const std::string &name, const Place &place);
  /// Applies an operation that changes values, such as ${NAME%PATTERN}.
  void change(Values &values, const Part &part);
  void takeSlice(Values &values, const Part &part);
  Text changed(const Text &text, const Part &part, const Pattern &pattern, const Text &replacement);
  Text replaced(const Text &text, std::string_view sign, const Pattern &pattern, const Text &replacement);
  Text notGiven(const std::string &name, const Place &place) const;
  Text number(int64_t value, const Place &place) const;
  std::string separators() const; ///< IFS

  std::map<std::string, std::string> given; ///< values of --env
};

} // namespace espalier::shell
