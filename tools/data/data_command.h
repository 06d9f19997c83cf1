// The subcommands that prepare and inspect data: `espalier data tokenize | verify | merge | index | train-tokenizer |
// inspect`. `espalier inspect PREFIX` is the same as `espalier data inspect PREFIX`.
#pragma once

#include "runtime/tokenizer/tokenizer.h"

#include "tools/command_line/command_line.h"
#include <string>
#include <vector>

namespace espalier {

/// Adds the subcommands. Their actions throw rt::DataError.
void addDataCommands(const Verb &app);

/// Returns true if `path` is PREFIX, PREFIX.idx or PREFIX.bin of an existing indexed dataset.
bool isIndexedDataset(const std::string &path);

/// Reads a whole dataset and returns its errors.
std::vector<std::string> datasetFaults(const std::string &path);

/// Settings for printing a dataset: the tokenizer that decodes documents (none: print ids) and the number of documents.
struct DatasetView {
  DatasetView() { tokenizer.kind.clear(); }
  rt::TokenizerOptions tokenizer;
  int documents = 3;
  bool json = false; ///< print the counts as JSON
};

/// Adds the options that set `view`.
void addDatasetView(const Verb &command, DatasetView &view);

/// Prints counts, a histogram of lengths and the first documents of a set, or the counts as JSON. Throws rt::DataError.
void inspectDataset(const std::string &path, const DatasetView &view);

/// Adds --tokenizer and the options for the files that each kind of tokenizer needs.
void addTokenizerOptions(const Verb &command, rt::TokenizerOptions &options);

} // namespace espalier
