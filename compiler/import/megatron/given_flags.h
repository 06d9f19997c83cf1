// Stores the flags of a command line. Each part of the importer takes the flags that belong to it.
#pragma once

#include "compiler/import/megatron/import_args.h"
#include "compiler/import/shell/evaluate_shell.h"

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace espalier {

/// Flags with their values and locations. Querying a flag marks it as used, with the `effect` of the first query.
/// Invalid values are reported at their location.
class GivenFlags {
public:
  GivenFlags(const std::string &file, ImportedArgs &result) : file(file), result(result) {}

  /// Reads the flags of the script's launch, or of all words if it launches nothing. Returns false after an error that
  /// leaves no flags.
  bool read(const std::string &text, const ShellInputs &inputs);

  /// Reports flags that the user excluded as ignored and removes them. A name that is not given is an error.
  void ignore(const std::vector<std::string> &names);

  bool isGiven(const std::string &flag) const { return given.count(flag) > 0; }

  /// Returns whether the flag is given and none of its values is known only to the shell.
  bool isKnown(const std::string &flag) const;

  /// Returns whether the flag is given with exactly one value, which is known. A last flag that is followed by further
  /// words does not count.
  bool isStated(const std::string &flag) const { return isKnown(flag) && haveOneValue(flag, flag); }

  /// Returns whether a flag without a value is given.
  bool isSet(const std::string &flag, const std::string &effect);

  /// Returns the single value of a flag, or nothing.
  std::optional<std::string> value(const std::string &flag, const std::string &effect);

  /// Returns all values of a given flag. A flag without values is an error.
  std::vector<std::string> values(const std::string &flag, const std::string &effect);

  /// Returns whether both flags are given with the same single value. Parts that only the shell knows must also be the
  /// same.
  bool haveOneValue(const std::string &one, const std::string &other) const;

  /// Returns a flag's value as an integer of at least `least`.
  std::optional<int64_t> count(const std::string &flag, const std::string &effect, int64_t least = 1);

  /// Returns a flag's value as a decimal number of at least 0, in its shortest form.
  std::optional<std::string> number(const std::string &flag, const std::string &effect);

  /// Returns a count from the launcher's own flags, before the script: that of the first of `names` that is given.
  /// Returns `otherwise` if none is given, and 0 if only the shell knows the value.
  int64_t launcherCount(std::initializer_list<const char *> names, int64_t otherwise = 0) const;

  /// Returns the word that makes launcherCount return 0, or null.
  const ShellWord *unknownLauncherWord(std::initializer_list<const char *> names) const;

  /// Returns whether torch's launcher starts the script, which uses one process if no count is given, or a plain Python
  /// does.
  bool isStartedByTorchOrPython() const { return startedByTorchOrPython; }

  /// Reports at the flag, or at the file if the flag is not given.
  void error(const std::string &flag, std::string message);
  void warning(const std::string &flag, std::string message);

  /// Reports an error at each flag that changes the training in a way that no key of a run file does, unless its value
  /// turns it off. Does not refuse the flags in `built`.
  void refuse(const std::vector<std::string> &built);

  /// Reports that a flag's value is given when the run starts, by `option`.
  void leaveToRun(const std::string &flag, const std::string &option);

  /// Reports the flags that no part has taken: as ignored with the reason, or as unknown. Values that only the shell
  /// knows are reported once per cause. Sorts the report by location.
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
  void reportNoFlags(const ShellRun &run);
  /// Reports unknown words behind the value of a flag, which may be more flags. Flags of data take several words.
  void reportUnknownWords(const Flag &flag);
  void reportUnknownWord(const ShellWord &word);
  /// Remembers that the value of a flag is unknown.
  void noteUnknown(const std::string &flag, const ShellWord &word);
  /// Returns whether the values of a flag are a placeholder, and reports an error at the first of them.
  bool reportsPlaceholder(const Flag &flag) const;
  void use(const std::string &flag, const std::string &effect);
  SourceLocation placeOf(const std::string &flag) const;

  const std::string &file;
  ImportedArgs &result;
  Flags given, launcher;
  bool startedByTorchOrPython = false;
  /// Flags whose values only the shell knows, by the name of what the values depend on.
  struct UnknownFlags {
    std::vector<std::string> flags;
    ShellWord value; ///< of the first one
  };
  std::map<std::string, UnknownFlags> unknownFlags;
  std::set<std::string> used;
};

} // namespace espalier
