// One function per parser of untrusted bytes, which the fuzzer and the seed test call. A parser may return or throw a
// DataError. Anything else is a bug.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace espalier::rt::fuzz {

using Bytes = const uint8_t *;

/// Input: a 2-byte length, an .idx file of this length, and a .bin file. Reads every sequence.
int fuzzIndex(Bytes data, size_t size);
/// Input: vocab.json, a zero byte, merges.txt.
int fuzzGpt2(Bytes data, size_t size);
/// Input: tokenizer.json.
int fuzzHf(Bytes data, size_t size);
/// Input: tokenizer.model.
int fuzzSentencepiece(Bytes data, size_t size);
/// Input: a rank file or tekken.json.
int fuzzTiktoken(Bytes data, size_t size);
/// Input: one line of a .jsonl file.
int fuzzJsonl(Bytes data, size_t size);
/// Input: a text. Aborts unless the hand-written scanner cuts the text like the regular expression.
int fuzzScanner(Bytes data, size_t size);

struct Target {
  const char *name; // also the folder of the seeds
  int (*run)(Bytes, size_t);
};
inline const std::vector<Target> &targets() {
  static const std::vector<Target> all = {{"data_index", fuzzIndex},
                                          {"data_gpt2", fuzzGpt2},
                                          {"data_hf", fuzzHf},
                                          {"data_sentencepiece", fuzzSentencepiece},
                                          {"data_jsonl", fuzzJsonl},
                                          {"data_scanner", fuzzScanner},
                                          {"data_tiktoken", fuzzTiktoken}};
  return all;
}

} // namespace espalier::rt::fuzz
