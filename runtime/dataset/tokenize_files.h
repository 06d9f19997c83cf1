// Converts text files to indexed datasets. One thread cuts the input into blocks, workers tokenize the blocks, and the
// blocks are written in input order. So the output depends neither on the number of workers nor on the number of
// partitions. Memory: a few blocks per worker.
#pragma once

#include "runtime/dataset/tokenize_chat.h"
#include "runtime/tokenizer/tokenizer.h"

#include <functional>
#include <map>

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

/// Runs the job. The output of conversations is two datasets: the tokens, and beside them their loss mask
/// (lossMaskPrefix). Creates no output unless the whole job succeeds. Throws DataError with file and line for the first
/// line that is not a JSON object or lacks a key, and for the first document of a text file that is not UTF-8 or
/// contains NUL (unless skipBad). Also throws DataError for existing outputs (unless replaces), for inputs without
/// text, and for every read or write error.
TokenizeReport tokenizeFiles(const Tokenizer &tokenizer, const TokenizeJob &job);

} // namespace espalier::rt
