// Text to token ids and back. A Tokenizer may keep a cache, so each thread has its own: clone()
// shares the tables.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

class Tokenizer {
public:
  virtual ~Tokenizer() = default;
  /// Appends the ids of `text` (any bytes). Throws DataError only where the text itself is at
  /// fault.
  virtual void encode(std::string_view text, std::vector<int32_t> &ids) = 0;
  /// The text of `ids`. Throws DataError for an id outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// One more than the largest id.
  virtual int64_t vocabSize() const = 0;
  /// The id that ends a document, or -1 when the vocabulary has none.
  virtual int32_t eodToken() const = 0;
  /// The same tokenizer for another thread.
  virtual std::unique_ptr<Tokenizer> clone() const = 0;

  std::vector<int32_t> encode(std::string_view text) {
    std::vector<int32_t> ids;
    encode(text, ids);
    return ids;
  }
};

/// Which tokenizer, as the command names them.
struct TokenizerOptions {
  std::string kind = "bytes"; // one of tokenizerKinds()
  std::string vocabFile;      // gpt2: vocab.json
  std::string mergeFile;      // gpt2: merges.txt
  std::string modelFile;      // hf: tokenizer.json; sentencepiece: tokenizer.model
  int64_t vocabSize = 0;      // null: how many ids there are
  /// HF's way: special tokens written in the text become their ids, and hf adds the tokens its
  /// post-processor adds. Off is Megatron's way for gpt2 and sentencepiece: text is only text.
  bool specialTokens = false;
  /// sentencepiece: each document begins with the model's token for it, as Megatron's
  /// Llama2Tokenizer does.
  bool addBos = false;
  /// hf: the token that ends a document; empty looks for the usual names.
  std::string eodText;
};

/// The kinds: gpt2, hf, sentencepiece, bytes and null, and behind them what Megatron calls the first three.
std::vector<std::string> tokenizerKinds();

/// Throws DataError when a file is missing, broken or of a kind this program does not read.
std::unique_ptr<Tokenizer> openTokenizer(const TokenizerOptions &options);

/// Ids 0 to 255 are the bytes, 256 ends a document.
std::unique_ptr<Tokenizer> makeByteTokenizer();
/// Text is a list of ids in decimal, separated by spaces; the last id ends a document.
std::unique_ptr<Tokenizer> makeNullTokenizer(int64_t vocabSize);
std::unique_ptr<Tokenizer> openGpt2Tokenizer(const TokenizerOptions &options);
std::unique_ptr<Tokenizer> openHfTokenizer(const TokenizerOptions &options);
std::unique_ptr<Tokenizer> openSentencePieceTokenizer(const TokenizerOptions &options);

} // namespace espalier::rt
