// Files that a command writes.
#pragma once

#include <string>

namespace espalier {

/// Writes `text` so that a reader sees either the old file or the whole new one. On failure says that `what` ("the
/// plan") cannot be written and returns false.
bool writeWhole(const std::string &path, const std::string &text, const char *what);

} // namespace espalier
