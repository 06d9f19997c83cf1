// Text files to indexed datasets: one thread cuts the input into blocks, workers tokenize them, and
// blocks are written in input order, so the output depends neither on the number of workers nor on that of partitions.
// Memory: a few blocks a worker.
#pragma once

#include "runtime/data/tokenizer.h"

#include <functional>
#include <map>

namespace espalier::rt {

struct TokenizeProgress {
  int64_t documents = 0, tokens = 0;
  int64_t bytesRead = 0,
          bytesTotal = 0; // of the input files as they stand on disk; total 0 when unknown
};

struct TokenizeJob {
  std::vector<std::string> inputs;          // "-" is standard input; .jsonl, .json or text, each also .gz
  std::vector<std::string> keys = {"text"}; // one output for each; text files fill the first
  std::string outputPrefix;                 // PREFIX_KEY_document.bin and .idx
  std::string separator;                    // text files: the line between documents; empty cuts at blank lines
  bool readsJson = false;                   // standard input and files of other names hold JSON lines
  bool appendEod = false;                   // end each document that has tokens with the tokenizer's end token
  bool skipBad = false;                     // count bad lines and documents instead of stopping at the first
  bool replaces = false;                    // the outputs may take the place of datasets that are there
  bool mayBeEmpty = false;                  // the outputs may hold no token
  int workers = 1;
  /// The input is split in as many parts, which are read and tokenized at the same time, each with its share of the
  /// workers, and then merged in order: plain JSON lines between two lines, other inputs between two files.
  int partitions = 1;
  std::function<void(const TokenizeProgress &)> progress; // called after each block; may be empty
};

struct TokenizeReport {
  int64_t documents = 0, tokens = 0, textBytes = 0, skippedLines = 0;
  std::string firstSkipped; // file, line and reason of the first
  std::string firstMark;    // "FILE:LINE" of the first <|endoftext|> in a text file, empty if there is none
  std::vector<std::string> prefixes;
};

/// Runs the job. Nothing is left at the output names unless all went well. Throws DataError with
/// file and line for the first line that is no JSON object, or lacks a key, and the first document
/// of a text file that is not UTF-8 or holds a NUL (unless skipBad); and for outputs that are there
/// already (unless replaces), for inputs without text, and for every failure to read or write.
TokenizeReport tokenizeFiles(const Tokenizer &tokenizer, const TokenizeJob &job);

} // namespace espalier::rt
