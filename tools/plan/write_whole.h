// Writes the output files of commands.
#pragma once

#include <string>

namespace espalier {

/// Writes `text` atomically: a reader sees either the old file or the complete new one. On failure, prints that `what`
/// ("the plan") cannot be written and returns false.
bool writeWhole(const std::string &path, const std::string &text, const char *what);

/// Returns whether `what` can be written to `path`, and prints an error if not. Commands ask before their work. An
/// empty path, of an option that is not given, can be written.
bool canWrite(const std::string &path, const char *what);

/// Creates the folder of an option and returns whether files can be written there. Prints an error if not.
bool canWriteInto(const std::string &folder, const char *option);

} // namespace espalier
