// What a set holds, for people: counts, a histogram of lengths, the first documents; and a check of
// every token.
#pragma once

#include "runtime/data/indexed_dataset.h"
#include "runtime/data/tokenizer.h"

namespace espalier::rt {

/// Several lines of text. Documents are shown as text when `tokenizer` is given, else as ids.
std::string describeDataset(const IndexedDataset &set, const Tokenizer *tokenizer, int documents);

/// Reads every token; returns the largest, -1 for a set without tokens. Throws DataError naming the
/// first sequence with a token that is none, or at or above `vocabSize` (0: any).
int64_t verifyTokens(const IndexedDataset &set, int64_t vocabSize);

} // namespace espalier::rt
