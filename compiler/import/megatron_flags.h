// The flags of Megatron-LM's training scripts (core r0.6 to r0.14): which are mapped,
// and why the others have no effect here.
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// Why a flag is not looked at; null for a flag that is mapped or not known.
const char *ignoredReason(const std::string &flag);

/// All known flags, for suggestions.
std::vector<std::string> knownFlags();

} // namespace espalier
