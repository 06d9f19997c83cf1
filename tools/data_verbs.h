// What the files of the data verbs share.
#pragma once

#include "compiler/command_line.h"
#include <string>
#include <vector>

namespace espalier {

/// Names as given, patterns as the files they match, in the order of their names. Throws DataError
/// for a pattern without a match.
std::vector<std::string> expandPatterns(const std::vector<std::string> &patterns);

void addTrainTokenizer(const Verb &data);

} // namespace espalier
