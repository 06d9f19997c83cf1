// Opens a text file as an indexed dataset in memory. The bytes of the file are the u8 tokens, so only the index is
// built.
#pragma once

#include "runtime/dataset/indexed_dataset.h"

namespace espalier::rt {

/// The number of ids of the byte tokenizer that text files use: the 256 bytes.
constexpr int64_t byteVocabSize = 256;

/// Maps `path` and cuts it into documents. A document ends after a blank line, and all documents in order give the
/// file. A text with fewer than 100 documents is cut at line breaks into about 100 pieces, so that a split by documents
/// is useful. Throws DataError if the file is missing, empty, binary, or JSON lines.
IndexedDataset openText(const std::string &path);

} // namespace espalier::rt
