// Expands {a,b} and {1..4} in words, before all other expansions.
#pragma once

#include "compiler/import/shell/budget.h"
#include "compiler/import/shell/syntax.h"

#include <vector>

namespace espalier::shell {

/// Returns the words that a word stands for: "x{a,b}" stands for "xa" and "xb".
std::vector<Word> expandBraces(const Word &word, Budget &budget);

} // namespace espalier::shell
