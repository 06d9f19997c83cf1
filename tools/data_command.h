// The verbs that prepare and look at data: `espalier data tokenize | verify | merge | index |
// train-tokenizer | inspect`. The last is also what `espalier inspect PREFIX` does.
#pragma once

#include "runtime/data/tokenizer.h"

#include "compiler/command_line.h"
#include <string>

namespace espalier {

/// Adds the verbs. Their actions throw rt::DataError.
void addDataCommands(const Verb &app);

/// True when `path` is PREFIX, PREFIX.idx or PREFIX.bin of an indexed dataset that exists.
bool isIndexedDataset(const std::string &path);

/// How to show a set: the tokenizer that turns documents into text (none: ids), how many documents.
struct DatasetView {
  DatasetView() { tokenizer.kind.clear(); }
  rt::TokenizerOptions tokenizer;
  int documents = 3;
};

/// Adds the options that fill `view`.
void addDatasetView(const Verb &command, DatasetView &view);

/// Prints counts, a histogram of lengths and the first documents of a set. Throws rt::DataError.
void inspectDataset(const std::string &path, const DatasetView &view);

/// --tokenizer and the files that its kinds need.
void addTokenizerOptions(const Verb &command, rt::TokenizerOptions &options);

} // namespace espalier
