// Tokenizes ranges of the input, as one partition of a job.
#pragma once

#include "runtime/dataset/indexed_dataset.h"
#include "runtime/dataset/tokenize_chat.h"
#include "runtime/tokenizer/tokenizer.h"

#include <functional>
#include <limits>
#include <map>
#include <span>

namespace espalier::rt {

/// The progress of a job.
struct TokenizeProgress {
  int64_t documents = 0, tokens = 0;
  int64_t bytesRead = 0,
          bytesTotal = 0; // size of the input files on disk; 0: unknown
};

/// The inputs, outputs and options of a tokenization.
struct TokenizeJob {
  std::vector<std::string> inputs;          // "-" is standard input; .jsonl, .json or text, each also .gz
  std::vector<std::string> keys = {"text"}; // one output per key; text files use the first key
  std::optional<ChatJob> chat;              // conversations instead of the text of keys
  std::string outputPrefix;                 // PREFIX_KEY_document.bin and .idx
  std::string separator;                    // text files: the line between documents; empty: blank lines
  bool readsJson = false;                   // standard input and unknown file names hold JSON lines
  bool appendEod = false;                   // end each non-empty document with the end-of-document token
  bool skipBad = false;                     // count bad lines and documents instead of stopping at the first
  bool replaces = false;                    // the outputs may replace existing datasets
  bool mayBeEmpty = false;                  // the outputs may hold no token
  int workers = 1;
  /// The number of partitions of the input. Partitions are read and tokenized in parallel, each with its share of the
  /// workers, and then merged in order. Plain JSON lines are split between lines, other inputs between files.
  int partitions = 1;
  std::function<void(const TokenizeProgress &)> progress; // called after each block; may be empty
};

/// The result of a tokenization.
struct TokenizeReport {
  int64_t documents = 0, tokens = 0, textBytes = 0, skippedLines = 0;
  int64_t lossTokens = 0;   // conversations: tokens that count in the loss
  std::string firstSkipped; // file, line and reason of the first skipped record
  std::string firstMark;    // "FILE:LINE" of the first <|endoftext|> in a text file; empty: none
  std::vector<std::string> prefixes;
};

/// The lines of a file that start in [begin, end).
struct InputRange {
  std::string path;
  int64_t begin = 0, end = std::numeric_limits<int64_t>::max();
};

/// Runs the job over these ranges instead of its inputs, as one partition.
TokenizeReport tokenizeRanges(const Tokenizer &tokenizer, const TokenizeJob &job, std::span<const InputRange> ranges);

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
