// Describes a dataset for people: counts, a histogram of lengths and the first documents. Also checks every token.
#pragma once

#include "runtime/dataset/indexed_dataset.h"
#include "runtime/tokenizer/tokenizer.h"

namespace espalier::rt {

/// Returns several lines of text. Shows documents as text if `tokenizer` is given, else as ids.
std::string describeDataset(const IndexedDataset &set, const Tokenizer *tokenizer, int documents);

/// Reads every token and returns the largest, or -1 for a dataset without tokens. Throws DataError naming the first
/// sequence with an invalid token or a token at or above `vocabSize` (0: no limit).
int64_t verifyTokens(const IndexedDataset &set, int64_t vocabSize);

/// Checks the loss mask of a dataset: its sequences and every value. An empty prefix is no mask. Throws DataError.
void verifyLossMask(const IndexedDataset &set, const std::string &prefix);

} // namespace espalier::rt
