// The verbs that prepare and look at data: `espalier data tokenize | verify | merge | index |
// train-tokenizer | inspect`. The last is also what `espalier inspect PREFIX` does.
#pragma once

#include "runtime/data/tokenizer.h"

#include <CLI/CLI.hpp>
#include <string>

namespace espalier {

/// Registers the subcommands on `app`. Their callbacks do the work; on an error they print it to
/// standard error and throw CLI::RuntimeError(2), which app.exit() turns into exit status 2.
void addDataCommands(CLI::App &app);

/// True when `path` is PREFIX, PREFIX.idx or PREFIX.bin of an indexed dataset that exists.
bool isIndexedDataset(const std::string &path);

/// How to show a set: the tokenizer that turns documents into text (none: ids), how many documents.
struct DatasetView {
  DatasetView() { tokenizer.kind.clear(); }
  rt::TokenizerOptions tokenizer;
  int documents = 3;
};

/// Adds the options that fill `view`.
void addDatasetView(CLI::App &command, DatasetView &view);

/// Prints counts, a histogram of lengths and the first documents of a set. Throws rt::DataError.
void inspectDataset(const std::string &path, const DatasetView &view);

/// --tokenizer and the files that its kinds need.
void addTokenizerOptions(CLI::App &command, rt::TokenizerOptions &options);

} // namespace espalier
