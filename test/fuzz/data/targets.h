// What the fuzzer calls, one function for each parser of untrusted bytes. Each may only return or
// throw inside: a DataError is the parser's answer, anything else is a fault. The seed test calls
// the same functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace espalier::rt::fuzz {

using Bytes = const uint8_t *;

/// A length byte pair, an .idx of that many bytes, the rest as .bin; every sequence is read.
int fuzzIndex(Bytes data, size_t size);
/// vocab.json, a zero byte, merges.txt.
int fuzzGpt2(Bytes data, size_t size);
/// tokenizer.json.
int fuzzHf(Bytes data, size_t size);
/// tokenizer.model.
int fuzzSentencepiece(Bytes data, size_t size);
/// One line of a .jsonl file.
int fuzzJsonl(Bytes data, size_t size);
/// Text: the hand-written scanner must cut where the pattern does; aborts otherwise.
int fuzzScanner(Bytes data, size_t size);

struct Target {
  const char *name; // the folder of its seeds
  int (*run)(Bytes, size_t);
};
inline const std::vector<Target> &targets() {
  static const std::vector<Target> all = {{"data_index", fuzzIndex}, {"data_gpt2", fuzzGpt2},
                                          {"data_hf", fuzzHf},       {"data_sentencepiece", fuzzSentencepiece},
                                          {"data_jsonl", fuzzJsonl}, {"data_scanner", fuzzScanner}};
  return all;
}

} // namespace espalier::rt::fuzz
