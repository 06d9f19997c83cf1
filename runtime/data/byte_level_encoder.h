// The hot path of byte-level BPE: pieces of GPT-2's pattern, each looked up in a cache of whole
// words, else merged.
#pragma once

#include "runtime/data/bpe_vocabulary.h"
#include "runtime/data/gpt2_scanner.h"
#include "runtime/data/word_cache.h"

#include <memory>
#include <span>

namespace espalier::rt {

class ByteLevelEncoder {
public:
  /// `takesWholeWords`: a word that is a token is that token, whatever the merges say.
  ByteLevelEncoder(std::shared_ptr<const BpeVocabulary> vocabulary, bool takesWholeWords);

  /// Appends the ids of `text` cut by GPT-2's pattern.
  void encodeText(std::string_view text, std::vector<int32_t> &ids);
  /// Appends the ids of text[position, end) as one word.
  void encodeWord(std::string_view text, size_t position, size_t end, std::vector<int32_t> &ids);

private:
  void mergeWord(std::string_view word);

  std::shared_ptr<const BpeVocabulary> vocabulary;
  bool takesWholeWords;
  std::array<int32_t, 256> byteIds;
  Gpt2Scanner scanner;
  WordCache cache;
  std::vector<int32_t> merged; // one word, kept for its capacity
};

/// The bytes of byte-level tokens. Texts that are no byte-level characters (special tokens) stand
/// for themselves.
std::string decodeByteLevel(const BpeVocabulary &vocabulary, std::span<const int32_t> ids, const std::string &file);

} // namespace espalier::rt
