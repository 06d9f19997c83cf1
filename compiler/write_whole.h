// Writes the output files of commands.
#pragma once

#include <string>

namespace espalier {

/// Writes `text` atomically: a reader sees either the old file or the complete new one. On failure, prints that `what`
/// ("the plan") cannot be written and returns false.
bool writeWhole(const std::string &path, const std::string &text, const char *what);

} // namespace espalier
