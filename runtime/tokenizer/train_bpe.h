// Trains a byte-level BPE: repeatedly merges the most frequent pair of neighbouring tokens into a new token. Equal to
// the trainer of HF's tokenizers on the same text, with the same ids and the same tie-breaking (the smaller pair of ids
// first).
#pragma once

#include "runtime/tokenizer/gpt2_scanner.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// The options of the training.
struct TrainBpeOptions {
  int64_t vocabSize = 30000;                                  // includes special tokens and the 256 bytes
  int64_t minFrequency = 0;                                   // stop at pairs rarer than this
  std::vector<std::string> specialTokens = {"<|endoftext|>"}; // get the first ids
};

/// Counts the words of texts; words are the pieces of GPT-2's pattern. A piece above `longestWord` bytes, which no
/// language has, counts as several words. Otherwise each merge within millions of equal bytes would double the length
/// of a token, and thus the memory.
class WordCounts {
public:
  static constexpr size_t longestWord = 4096;

  /// Counts the words of a text.
  void add(std::string_view text);
  /// Returns the number of occurrences of each word.
  const std::map<std::string, int64_t, std::less<>> &counts() const { return words; }

private:
  Gpt2Scanner scanner;
  std::map<std::string, int64_t, std::less<>> words; // ordered, so that training is deterministic
};

/// A trained vocabulary.
struct TrainedBpe {
  std::vector<std::string> tokens; // by id, in byte-level characters; special tokens unchanged
  std::vector<std::pair<int32_t, int32_t>> merges;
  size_t specialCount = 0; // tokens[0, specialCount) are special
};

/// Trains a vocabulary. Throws DataError if vocabSize is too small for the special tokens and the bytes.
TrainedBpe trainBpe(const WordCounts &words, const TrainBpeOptions &options);

/// Returns the result as tokenizer.json, byte for byte as HF's tokenizers writes it.
std::string toTokenizerJson(const TrainedBpe &trained);

/// Return the result as GPT-2's two files, vocab.json and merges.txt.
std::string toVocabJson(const TrainedBpe &trained);
std::string toMergeLines(const TrainedBpe &trained);

} // namespace espalier::rt
