// Functions that the data subcommands share.
#pragma once

#include "compiler/command_line.h"
#include <string>
#include <vector>

namespace espalier {

/// Expands file patterns. Names without a pattern are returned as given, and matches are sorted by name. Throws
/// DataError if a pattern has no match.
std::vector<std::string> expandPatterns(const std::vector<std::string> &patterns);

/// Adds `data train-tokenizer`.
void addTrainTokenizer(const Verb &data);

} // namespace espalier
