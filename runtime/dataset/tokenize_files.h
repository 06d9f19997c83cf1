// Converts text files to indexed datasets. One thread cuts the input into blocks, workers tokenize the blocks, and the
// blocks are written in input order. So the output depends neither on the number of workers nor on the number of
// partitions. Memory: a few blocks per worker.
#pragma once

#include "runtime/dataset/tokenize_ranges.h"

namespace espalier::rt {

/// Runs the job. The output of conversations is two datasets: the tokens, and beside them their loss mask
/// (lossMaskPrefix). Creates no output unless the whole job succeeds. Throws DataError with file and line for the first
/// line that is not a JSON object or lacks a key, and for the first document of a text file that is not UTF-8 or
/// contains NUL (unless skipBad). Also throws DataError for existing outputs (unless replaces), for inputs without
/// text, and for every read or write error.
TokenizeReport tokenizeFiles(const Tokenizer &tokenizer, const TokenizeJob &job);

} // namespace espalier::rt
