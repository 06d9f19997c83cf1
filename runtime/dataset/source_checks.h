// Checks of a token source that all datasets share.
#pragma once

#include "runtime/dataset/dataset.h"
#include "runtime/dataset/token_source.h"

#include <utility>

namespace espalier::rt {

/// Returns the sequences [first, end) of the split. Throws DataError if there are none, or if the first of them has a
/// token outside the vocabulary.
std::pair<int64_t, int64_t> sequencesOf(const TokenSource &source, const DatasetOptions &options);

/// Throws DataError if a token of the sample, which lies near `sequence`, is not below `vocabSize` (0: no limit).
void requireVocabulary(const TokenSource &source, std::span<const int32_t> tokens, int64_t sample, int64_t sequence,
                       int64_t vocabSize);

} // namespace espalier::rt
