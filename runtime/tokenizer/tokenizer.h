// Converts text to token ids and back. A Tokenizer may keep a cache, so each thread needs its own. clone() shares the
// tables.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// The interface of all tokenizers.
class Tokenizer {
public:
  virtual ~Tokenizer() = default;
  /// Appends the ids of `text` (any bytes). Throws DataError only if the text itself is invalid.
  virtual void encode(std::string_view text, std::vector<int32_t> &ids) = 0;
  /// Returns the text of `ids`. Throws DataError for an id outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// Returns the largest id plus 1.
  virtual int64_t vocabSize() const = 0;
  /// Returns whether the id is a token. A vocabulary may have gaps.
  virtual bool hasToken(int32_t id) const { return id >= 0 && id < vocabSize(); }
  /// Returns the end-of-document id, or -1 if the vocabulary has none.
  virtual int32_t eodToken() const = 0;
  /// Returns the text of a token that is no text itself but marks a place of a text, such as <|im_end|>; empty for
  /// other tokens.
  virtual std::string markOf(int32_t) const { return ""; }
  /// Returns the same tokenizer for another thread.
  virtual std::unique_ptr<Tokenizer> clone() const = 0;

  /// Returns the ids of `text`.
  std::vector<int32_t> encode(std::string_view text) {
    std::vector<int32_t> ids;
    encode(text, ids);
    return ids;
  }
};

/// The command-line options of a tokenizer.
struct TokenizerOptions {
  std::string kind = "bytes"; // one of tokenizerKinds()
  std::string vocabFile;      // gpt2: vocab.json
  std::string mergeFile;      // gpt2: merges.txt
  std::string modelFile;      // hf: tokenizer.json; sentencepiece: tokenizer.model; tiktoken: ranks or tekken.json
  std::string pattern;        // tiktoken: the encoding, or the pattern; empty: by the number of ranks, or the file
  int64_t vocabSize = 0;      // null: the number of ids
  /// Selects HF's behavior: special tokens in the text become their ids, and hf adds the tokens of its post-processor.
  /// The texts between the tokens of a sentencepiece model are encoded on their own, as Llama 2 does.
  /// Off selects Megatron's behavior for gpt2 and sentencepiece, and encode_ordinary for tiktoken: special tokens in
  /// the text are plain text.
  bool specialTokens = false;
  /// sentencepiece, tiktoken: starts each document with the begin token, as Megatron's Llama2Tokenizer does.
  bool addBos = false;
  /// hf, tiktoken: the end-of-document token. Empty selects one of the usual names.
  std::string eodText;
};

/// Returns the supported kinds: gpt2, hf, sentencepiece, tiktoken, bytes and null, followed by Megatron's names for the
/// first three.
std::vector<std::string> tokenizerKinds();

/// Replaces Megatron's name of a kind by ours, with the options that it implies.
TokenizerOptions withOwnKind(TokenizerOptions options);

/// Opens a tokenizer. Throws DataError if a file is missing, broken or of an unsupported kind.
std::unique_ptr<Tokenizer> openTokenizer(const TokenizerOptions &options);

/// Creates a tokenizer whose ids 0 to 255 are the bytes. Id 256 ends a document.
std::unique_ptr<Tokenizer> makeByteTokenizer();
/// Creates a tokenizer for text that consists of decimal ids, separated by spaces. The last id ends a document.
std::unique_ptr<Tokenizer> makeNullTokenizer(int64_t vocabSize);
/// Opens a tokenizer from vocab.json and merges.txt. Throws DataError.
std::unique_ptr<Tokenizer> openGpt2Tokenizer(const TokenizerOptions &options);
/// Opens a tokenizer.json. Throws DataError.
std::unique_ptr<Tokenizer> openHfTokenizer(const TokenizerOptions &options);
/// Opens a SentencePiece model. Throws DataError.
std::unique_ptr<Tokenizer> openSentencePieceTokenizer(const TokenizerOptions &options);
/// Opens a rank file of tiktoken, or a tekken.json. Throws DataError.
std::unique_ptr<Tokenizer> openTiktokenTokenizer(const TokenizerOptions &options);

} // namespace espalier::rt
