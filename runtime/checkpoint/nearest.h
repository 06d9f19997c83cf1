// Names that a reader may have meant.
#pragma once

#include <string>
#include <vector>

namespace espalier::rt {

/// "; the nearest is 'block.0.ln1_weight'": of the names, the one with the fewest changes of a letter. Empty where
/// there is none.
std::string nearestText(const std::string &name, const std::vector<std::string> &names);

} // namespace espalier::rt
