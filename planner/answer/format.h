// Formats text.
#pragma once

#include <cstddef>
#include <string>

namespace espalier::planner {

/// Formats like printf into a string.
std::string format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));

/// Breaks a line after commas and semicolons at 100 columns. Continuation lines are indented.
std::string wrapped(const std::string &line, size_t indent);

} // namespace espalier::planner
