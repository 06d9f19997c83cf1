// The hot path of byte-level BPE. GPT-2's pattern cuts the text into words; each word is looked up in a cache, and
// merged if the cache has no entry.
#pragma once

#include "runtime/tokenizer/bpe_vocabulary.h"
#include "runtime/tokenizer/gpt2_scanner.h"
#include "runtime/tokenizer/word_cache.h"

#include <memory>
#include <span>

namespace espalier::rt {

/// Encodes text with a byte-level BPE vocabulary.
class ByteLevelEncoder {
public:
  /// Creates an encoder. With `takesWholeWords`, a word that is a token becomes that token, whatever the merges say.
  ByteLevelEncoder(std::shared_ptr<const BpeVocabulary> vocabulary, bool takesWholeWords);

  /// Cuts `text` by GPT-2's pattern and appends the ids.
  void encodeText(std::string_view text, std::vector<int32_t> &ids);
  /// Encodes text[position, end) as one word and appends the ids.
  void encodeWord(std::string_view text, size_t position, size_t end, std::vector<int32_t> &ids);

private:
  void mergeWord(std::string_view word);

  std::shared_ptr<const BpeVocabulary> vocabulary;
  bool takesWholeWords;
  std::array<int32_t, 256> byteIds;
  Gpt2Scanner scanner;
  WordCache cache;
  std::vector<int32_t> merged; // one word; a member to reuse its memory
};

/// Returns the bytes of byte-level tokens. A text that is not in byte-level characters (a special token) is copied
/// unchanged.
std::string decodeByteLevel(const BpeVocabulary &vocabulary, std::span<const int32_t> ids, const std::string &file);

} // namespace espalier::rt
