// The "model" field of a tokenizer.json, which turns words into ids: BPE, Unigram or WordPiece.
#pragma once

#include "runtime/tokenizer/bpe_vocabulary.h"

#include <memory>

namespace espalier::rt {

/// Turns words into ids. Shared between threads.
class WordModel {
public:
  virtual ~WordModel() = default;
  /// Appends the ids of a word that is not empty. Throws DataError if the word has none.
  virtual void encode(const std::string &word, std::vector<int32_t> &ids) const = 0;
};

/// A model and its vocabulary.
struct HfModel {
  BpeVocabulary vocabulary;         // also holds the added tokens
  bool isBpe = false;               // words of bytes have a fast path
  bool takesWholeWords = false;     // BPE: a word that is a token becomes that token, whatever the merges say
  std::unique_ptr<WordModel> words; // refers to `vocabulary`
};

/// Reads the field into `model`, which then stays where it is. Throws DataError.
void readModel(const std::string &file, const nlohmann::json &field, HfModel &model);

} // namespace espalier::rt
