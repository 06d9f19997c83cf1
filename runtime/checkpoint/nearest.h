// Suggests names for misspelled ones.
#pragma once

#include <string>
#include <vector>

namespace espalier::rt {

/// Returns "; the nearest is 'block.0.ln1_weight'" for the name with the smallest edit distance; empty if there are
/// no names.
std::string nearestText(const std::string &name, const std::vector<std::string> &names);

} // namespace espalier::rt
