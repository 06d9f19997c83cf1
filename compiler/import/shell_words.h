// The words of a shell script's commands, read without running anything: assignments, arrays and $VAR are followed,
// quotes and continued lines joined; what only a shell can know is marked as unknown.
#pragma once

#include "compiler/import/diagnostics.h"

#include <string>
#include <string_view>
#include <vector>

namespace espalier {

/// One word after expansion. `unknown` names what could not be expanded in it ("$1"), empty when all is known.
struct ShellWord {
  std::string text;
  SourceLocation where; ///< of its first character, in the assignment that holds it
  std::string unknown;
};

using ShellCommand = std::vector<ShellWord>;

/// All commands of `text` in order. Control flow is not followed: every assignment counts, in file order, and a warning
/// says so. Errors: more than 1 MiB of text, more than 1 MiB after expansion, a quote or bracket that is not closed,
/// defaults in defaults deeper than 32 levels.
std::vector<ShellCommand> readShell(const std::string &file, std::string_view text, Diagnostics &diagnostics);

} // namespace espalier
