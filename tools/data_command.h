// The verbs that prepare and look at data: `espalier data tokenize | verify | merge | index |
// train-tokenizer` and `espalier inspect PREFIX`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace espalier {

/// Registers the subcommands on `app`. Their callbacks do the work; on an error they print it to
/// standard error and throw CLI::RuntimeError(2), which app.exit() turns into exit status 2.
void addDataCommands(CLI::App &app);

/// True when `path` is PREFIX, PREFIX.idx or PREFIX.bin of an indexed dataset that exists.
bool isIndexedDataset(const std::string &path);

/// Prints counts, a histogram of lengths and the first documents (as ids) of a set. Throws rt::DataError.
void inspectDataset(const std::string &path);

} // namespace espalier
