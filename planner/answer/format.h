// printf into a string.
#pragma once

#include <string>

namespace espalier::planner {

/// Formats like printf into a string.
std::string format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));

} // namespace espalier::planner
