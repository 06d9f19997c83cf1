// Lists the flags of Megatron-LM's training scripts (core r0.6 to r0.14): which ones are mapped, and why the others
// have no effect here.
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// Returns why a flag is ignored; null for a flag that is mapped or unknown.
const char *ignoredReason(const std::string &flag);

/// Returns all known flags, for suggestions.
std::vector<std::string> knownFlags();

} // namespace espalier
