// Splits a shell script into the words of its commands without executing anything. Follows assignments, arrays and
// $VAR, and joins quotes and continued lines. Values that only a shell knows are marked as unknown.
#pragma once

#include "compiler/import/yaml/diagnostics.h"

#include <string>
#include <string_view>
#include <vector>

namespace espalier {

/// One word after expansion. `unknown` names the part that could not be expanded ("$1"), or is empty.
struct ShellWord {
  std::string text;
  SourceLocation where; ///< location of its first character, in the assignment that defines it
  std::string unknown;
};

using ShellCommand = std::vector<ShellWord>;

/// Returns all commands of `text` in order. Control flow is not followed: every assignment counts, in file order, and a
/// warning reports this. Errors: more than 1 MiB of text before or after expansion, an unclosed quote or bracket, and
/// defaults nested deeper than 32 levels.
std::vector<ShellCommand> readShell(const std::string &file, std::string_view text, Diagnostics &diagnostics);

} // namespace espalier
