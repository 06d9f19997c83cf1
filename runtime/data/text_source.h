// A text file as an indexed dataset in memory: its bytes are already u8 tokens, only the index has
// to be made.
#pragma once

#include "runtime/data/indexed_dataset.h"

namespace espalier::rt {

/// Ids of the byte tokenizer: the 256 bytes; text files use no others.
constexpr int64_t byteVocabSize = 256;

/// Maps `path` and cuts it into documents, each up to and including a blank line, so that all
/// documents in file order are the file. A text with fewer than 100 of them is cut at line ends
/// into about 100 pieces, so that a split by documents still means something. Throws DataError for
/// a file that is absent, empty or no text, and for JSON lines.
IndexedDataset openText(const std::string &path);

} // namespace espalier::rt
