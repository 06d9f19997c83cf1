// Flags of Megatron-LM that ask for what is not built: they are refused, so that none of them changes a training
// without a word.
#pragma once

#include "compiler/import/given_flags.h"

#include <string>
#include <vector>

namespace espalier {

/// Reports an error at each given flag of something that is not built, unless its value says that it is not wanted.
void refuseUnbuilt(GivenFlags &given);

/// Names of the flags that refuseUnbuilt() knows.
std::vector<std::string> unbuiltFlags();

} // namespace espalier
