// Tokenizes the input in partitions in parallel and merges them in input order.
#pragma once

#include "runtime/dataset/indexed_dataset.h"
#include "runtime/dataset/tokenize_files.h"

#include <limits>
#include <span>

namespace espalier::rt {

/// The lines of a file that start in [begin, end).
struct InputRange {
  std::string path;
  int64_t begin = 0, end = std::numeric_limits<int64_t>::max();
};

/// Runs the job over these ranges instead of its inputs, as one partition.
TokenizeReport tokenizeRanges(const Tokenizer &tokenizer, const TokenizeJob &job, std::span<const InputRange> ranges);

/// Runs the job in job.partitions partitions. Throws the error of the first partition that fails, as a run without
/// partitions would. Needs twice the output's size on disk until the partitions are merged.
TokenizeReport tokenizePartitions(const Tokenizer &tokenizer, const TokenizeJob &job);

/// Returns whether an input holds JSON lines rather than text.
bool holdsJson(const std::string &path, const TokenizeJob &job);

/// Throws DataError if a job has produced no token.
void requireTokens(const TokenizeJob &job, const TokenizeReport &report);

/// A dataset that a job writes.
struct TokenizeOutput {
  std::string prefix;
  TokenType type;
};

/// Returns the datasets of a job: one per key, or the tokens of conversations and their mask.
std::vector<TokenizeOutput> outputsOf(const Tokenizer &tokenizer, const TokenizeJob &job);

/// Returns PREFIX_KEY_document.
std::string documentPrefix(const TokenizeJob &job, const std::string &key);

} // namespace espalier::rt
