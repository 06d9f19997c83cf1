// Evaluates a bash script without executing anything, and returns the words of the command that it launches.
#pragma once

#include "compiler/import/yaml/diagnostics.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

/// The most bytes of a script.
constexpr size_t mostScriptBytes = 1 << 20;

/// One word after expansion. `unknown` names what the word depends on ("$1") if only a shell knows it, or is empty.
/// `text` then holds the known parts.
struct ShellWord {
  std::string text;
  SourceLocation where; ///< location of its first character, in the assignment that defines it
  std::string unknown = {};
  std::string remedy = {};       ///< the way to give the unknown part: "give --arg 1=VALUE"
  SourceLocation unknownAt = {}; ///< location of the expansion that is unknown
};

using ShellCommand = std::vector<ShellWord>;

/// The values that the user gives, and access to files beside the script.
struct ShellInputs {
  std::map<int, std::string> arguments;           ///< by position; 1 is $1
  std::map<std::string, std::string> environment; ///< by name
  /// Returns the text of a file, by its path relative to the script's folder, or nothing. If null, no file is read.
  std::function<std::optional<std::string>(const std::string &path)> readBeside;
};

/// The result of an evaluation.
struct ShellRun {
  std::optional<ShellCommand> launch;     ///< the last command with a .py file
  std::vector<ShellCommand> commands;     ///< all commands that a shell would start, in order
  std::vector<std::string> flagVariables; ///< variables that hold words with --, in alphabetical order
};

/// Evaluates a script: control flow, functions, arrays, arithmetic and expansions. Unknown are the output of commands,
/// tests of files, and variables and arguments that nobody gives; ${NAME:-WORD} takes WORD for the latter. A branch
/// whose condition is unknown is evaluated both ways, and what differs is unknown because of the condition. Errors: the
/// flags of the launch depend on an unknown value, faults of the syntax, and scripts that take more than 1 MiB, 8 MiB
/// of values, 100000 commands, or 32 levels of nesting. Warnings: a file that is sourced is not found beside the
/// script.
ShellRun evaluateShell(const std::string &file, std::string_view text, const ShellInputs &inputs,
                       Diagnostics &diagnostics);

} // namespace espalier
