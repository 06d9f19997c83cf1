// Megatron's indexed dataset. PREFIX.bin holds the tokens; PREFIX.idx holds the location of each sequence and the
// sequences of each document. Layout of .idx, little-endian: "MMIDIDX\0\0", u64 version 1, u8 token type, u64 sequences
// S, u64 document entries D, i32 lengths[S], i64 byte offsets[S], i64 documents[D], and for multimodal datasets i8
// modes[S]. Arrays are unaligned, so every access copies.
#pragma once

#include "runtime/dataset/token_source.h"
#include "runtime/files/mapped_file.h"

#include <vector>

namespace espalier::rt {

/// The token type byte of an .idx file.
enum class TokenType : uint8_t { u8 = 1, i8, i16, i32, i64, f64, f32, u16 };

/// Returns the bytes of one token, or 0 for an unknown type code.
int tokenBytes(TokenType type);
/// Returns the name of a token type.
const char *tokenTypeName(TokenType type);
/// Returns Megatron's choice of token type: u16 below 65500 ids, else i32.
TokenType tokenTypeFor(int64_t vocabSize);

/// Returns the prefix of the loss mask of a dataset: a dataset of the same sequences with 1 for each token whose
/// prediction counts in the loss, and 0 for each other token.
std::string lossMaskPrefix(const std::string &prefix);

constexpr size_t indexHeaderBytes = 34;

/// An indexed dataset in mapped files or in memory.
class IndexedDataset final : public TokenSource {
public:
  /// Maps PREFIX.idx and PREFIX.bin, and checks every length, offset and document entry against the two file sizes.
  /// Throws DataError. Does not allocate memory in proportion to the files.
  static IndexedDataset open(const std::string &prefix);
  /// Opens two files that are already in memory. `name` appears in messages.
  static IndexedDataset fromMemory(std::string name, std::vector<uint8_t> index, std::vector<uint8_t> tokens);
  /// Opens a token file with an index that this program has built. Text files become datasets of u8 tokens in this way.
  static IndexedDataset overFile(std::string name, std::vector<uint8_t> index, MappedFile tokens);

  int64_t sequenceCount() const override { return sequences; }
  int64_t sequenceLength(int64_t i) const override;
  /// Copies tokens of a sequence. Throws DataError for a token that is negative or does not fit 32 bits.
  void read(int64_t i, int64_t offset, std::span<int32_t> out) const override;
  const std::string &name() const override { return prefixName; }
  std::string fingerprint() const override;

  /// Returns the token type.
  TokenType tokenType() const { return type; }
  /// Returns the number of documents, which is one less than the entries of the document array.
  int64_t documentCount() const { return documentEntries - 1; }
  /// Returns the first sequence of document i. documentStart(documentCount()) is sequenceCount().
  int64_t documentStart(int64_t i) const;
  /// Returns the sum of all sequence lengths.
  int64_t tokenCount() const { return totalTokens; }
  /// Returns whether the index has modes.
  bool isMultimodal() const { return hasModes; }
  /// Returns the byte offset of sequence i in the .bin file.
  int64_t byteOffset(int64_t i) const;
  /// Returns the whole .bin file.
  std::span<const uint8_t> tokenBytesSpan() const;

private:
  IndexedDataset() = default;
  void checkHeader();
  void checkArrays();
  std::span<const uint8_t> indexBytes() const;

  std::string prefixName;
  MappedFile indexFile, tokenFile;
  std::vector<uint8_t> ownedIndex, ownedTokens;
  TokenType type = TokenType::u16;
  int64_t sequences = 0, documentEntries = 0, totalTokens = 0;
  bool hasModes = false;
};

} // namespace espalier::rt
