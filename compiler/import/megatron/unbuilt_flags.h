// Refuses flags of Megatron-LM for features that are not implemented, so that no such flag silently changes a training.
#pragma once

#include "compiler/import/megatron/given_flags.h"

#include <string>
#include <vector>

namespace espalier {

/// Reports an error at each given flag of a feature that is not implemented, unless its value turns the feature off.
void refuseUnbuilt(GivenFlags &given);

/// Returns the names of the flags that refuseUnbuilt() knows.
std::vector<std::string> unbuiltFlags();

} // namespace espalier
