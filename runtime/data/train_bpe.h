// Trains a byte-level BPE: again and again the most frequent pair of neighbouring tokens becomes a
// token. Equal to the trainer of HF's tokenizers on the same text: same order of ids, same ties
// (the smaller pair of ids first).
#pragma once

#include "runtime/data/gpt2_scanner.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

struct TrainBpeOptions {
  int64_t vocabSize = 30000;                                  // special tokens and the 256 bytes count
  int64_t minFrequency = 0;                                   // stop at pairs rarer than this
  std::vector<std::string> specialTokens = {"<|endoftext|>"}; // take the first ids
};

/// How often each word of the texts occurs; words are the pieces of GPT-2's pattern. A piece beyond `longestWord`
/// bytes, which no language has, counts as several words: each merge within one of millions of equal bytes would double
/// a token, and with it the memory.
class WordCounts {
public:
  static constexpr size_t longestWord = 4096;

  void add(std::string_view text);
  const std::map<std::string, int64_t, std::less<>> &counts() const { return words; }

private:
  Gpt2Scanner scanner;
  std::map<std::string, int64_t, std::less<>> words; // ordered, so that training is deterministic
};

struct TrainedBpe {
  std::vector<std::string> tokens; // by id, byte-level characters; special tokens as they are
  std::vector<std::pair<int32_t, int32_t>> merges;
  size_t specialCount = 0; // tokens[0, specialCount) are special
};

/// Throws DataError when vocabSize does not hold the special tokens and the bytes.
TrainedBpe trainBpe(const WordCounts &words, const TrainBpeOptions &options);

/// The tokenizer.json of the result, byte for byte what HF's tokenizers saves.
std::string toTokenizerJson(const TrainedBpe &trained);

/// The same in GPT-2's two files, vocab.json and merges.txt.
std::string toVocabJson(const TrainedBpe &trained);
std::string toMergeLines(const TrainedBpe &trained);

} // namespace espalier::rt
