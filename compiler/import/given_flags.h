// The flags that a command line gives, each taken by the part of the run file that it is for.
#pragma once

#include "compiler/import/import_args.h"
#include "compiler/import/shell_words.h"

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace espalier {

/// Flags with their values and places. A flag that is asked for counts as used, with the `effect` of the first
/// question; wrong values are reported where they stand.
class GivenFlags {
public:
  GivenFlags(const std::string &file, ImportedArgs &result) : file(file), result(result) {}

  /// Takes the last command with a .py file apart, or all words where there is none. No flag at all is an error.
  void read(const std::string &text);

  /// Reports flags of the user's choice as ignored and forgets them. Each must be given.
  void ignore(const std::vector<std::string> &names);

  bool isGiven(const std::string &flag) const { return given.count(flag) > 0; }

  /// Whether it is given and no value of it is known to the shell alone.
  bool isKnown(const std::string &flag) const;

  /// A flag without a value.
  bool isSet(const std::string &flag, const std::string &effect);

  /// The single value of a flag.
  std::optional<std::string> value(const std::string &flag, const std::string &effect);

  /// All values of a flag that is given; none at all is an error.
  std::vector<std::string> values(const std::string &flag, const std::string &effect);

  /// Whether both flags are given, with the same single value: what only the shell knows of it is the same, too.
  bool haveOneValue(const std::string &one, const std::string &other) const;

  /// A whole number of at least 1.
  std::optional<int64_t> count(const std::string &flag, const std::string &effect);

  /// A decimal number of at least 0, as it is printed shortest.
  std::optional<std::string> number(const std::string &flag, const std::string &effect);

  /// A count among the launcher's own flags, before the script, by the first of `names` that is given; `otherwise`
  /// where none is, 0 where only the shell knows it.
  int64_t launcherCount(std::initializer_list<const char *> names, int64_t otherwise = 0) const;

  /// Whether torch's launcher starts the script, which takes one process where no count is stated, or a plain Python.
  bool isStartedByTorchOrPython() const { return startedByTorchOrPython; }

  /// At the flag, or at the file where it is not given.
  void error(const std::string &flag, std::string message);
  void warning(const std::string &flag, std::string message);

  /// What nobody took is ignored with its reason, or unknown; values that only the shell knows are told once for each
  /// cause. Sorts the report by place.
  void reportRest();

private:
  struct Flag {
    std::string name;
    SourceLocation where;
    std::vector<ShellWord> values;
  };
  using Flags = std::map<std::string, Flag>;
  using Words = ShellCommand::const_iterator;
  static void readFlags(Words begin, Words end, Flags &flags);
  /// Whether the values of a flag are a placeholder, which is an error at the first of them.
  bool reportsPlaceholder(const Flag &flag) const;
  void use(const std::string &flag, const std::string &effect);
  SourceLocation placeOf(const std::string &flag) const;

  const std::string &file;
  ImportedArgs &result;
  Flags given, launcher;
  bool startedByTorchOrPython = false;
  std::map<std::string, std::vector<std::string>> unknownFlags; ///< by what only the shell knows of their values
  std::set<std::string> used;
};

} // namespace espalier
