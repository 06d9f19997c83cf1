// Evaluates the conditions of `test`, [ ] and [[ ]].
#pragma once

#include "compiler/import/shell/expander.h"

#include <vector>

namespace espalier::shell {

/// Returns the status of `test` with these arguments. Tests of files are unknown.
Truth evaluateTest(Expander &shell, const std::vector<Text> &arguments, const Place &place);

/// Returns the status of a condition of [[ ]].
Truth evaluateCondition(Expander &shell, const Node &condition);

/// Returns whether a text matches a pattern.
Truth matchPattern(Expander &shell, const Text &text, const Word &pattern);

} // namespace espalier::shell
