// One job of tokenization in several parts at the same time, merged in input order.
#pragma once

#include "runtime/data/tokenize_files.h"

#include <limits>
#include <span>

namespace espalier::rt {

/// The lines of a file that start in [begin, end).
struct InputRange {
  std::string path;
  int64_t begin = 0, end = std::numeric_limits<int64_t>::max();
};

/// The job over these ranges instead of its inputs, in one part.
TokenizeReport tokenizeRanges(const Tokenizer &tokenizer, const TokenizeJob &job, std::span<const InputRange> ranges);

/// The job in job.partitions parts. A fault is that of the first part that has one, as without partitions. Takes twice
/// the output's size on disk until the parts are merged.
TokenizeReport tokenizePartitions(const Tokenizer &tokenizer, const TokenizeJob &job);

/// Whether an input holds JSON lines rather than text.
bool holdsJson(const std::string &path, const TokenizeJob &job);

/// Throws DataError if a job has made no token.
void requireTokens(const TokenizeJob &job, const TokenizeReport &report);

/// PREFIX_KEY_document.
std::string documentPrefix(const TokenizeJob &job, const std::string &key);

} // namespace espalier::rt
