// Functions that the data subcommands share.
#pragma once

#include "tools/command_line/command_line.h"
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace espalier {

/// Expands file patterns. Names without a pattern are returned as given, and matches are sorted by name. Throws
/// DataError if a pattern has no match.
std::vector<std::string> expandPatterns(const std::vector<std::string> &patterns);

/// Adds --json.
void addJsonFlag(const Verb &command, bool &json);

/// Prints a report of a verb as JSON, with the number of its schema.
void printJson(nlohmann::ordered_json report);

/// Adds `data tokenize`.
void addTokenize(const Verb &data);

/// Adds `data train-tokenizer`.
void addTrainTokenizer(const Verb &data);

} // namespace espalier
