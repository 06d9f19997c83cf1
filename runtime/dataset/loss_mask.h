// The loss mask of a dataset: a dataset of the same sequences, with 1 for each token whose prediction counts in the
// loss.
#pragma once

#include "runtime/dataset/token_source.h"

namespace espalier::rt {

/// Throws DataError if a sequence and its mask differ in length.
void requireSameSequences(const TokenSource &source, const TokenSource &mask);

/// Throws DataError if one of these values of a sequence of the mask is neither 0 nor 1.
void requireMaskValues(const TokenSource &mask, int64_t sequence, std::span<const int32_t> values);

} // namespace espalier::rt
