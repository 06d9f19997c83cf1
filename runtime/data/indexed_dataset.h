// Megatron's indexed dataset: PREFIX.bin holds bare tokens, PREFIX.idx says where each sequence
// lies and which sequences make a document. Layout of .idx, little-endian: "MMIDIDX\0\0", u64
// version 1, u8 token type, u64 sequences S, u64 document entries D, i32 lengths[S], i64 byte
// offsets[S], i64 documents[D], and for multimodal sets i8 modes[S]. Arrays are unaligned, so every
// access copies.
#pragma once

#include "runtime/data/mapped_file.h"
#include "runtime/data/token_source.h"

#include <vector>

namespace espalier::rt {

/// The token type byte of an .idx file.
enum class TokenType : uint8_t { u8 = 1, i8, i16, i32, i64, f64, f32, u16 };

/// Bytes of one token, 0 for a byte that is no token type.
int tokenBytes(TokenType type);
const char *tokenTypeName(TokenType type);
/// What Megatron chooses: u16 below 65500 ids, else i32.
TokenType tokenTypeFor(int64_t vocabSize);

constexpr size_t indexHeaderBytes = 34;

class IndexedDataset final : public TokenSource {
public:
  /// Maps PREFIX.idx and PREFIX.bin and checks every length, offset and document entry against the
  /// two file sizes before any is used. Throws DataError; allocates nothing that grows with the
  /// files.
  static IndexedDataset open(const std::string &prefix);
  /// The same over two files already in memory; `name` stands in messages.
  static IndexedDataset fromMemory(std::string name, std::vector<uint8_t> index, std::vector<uint8_t> tokens);
  /// The same with an index made here for a file of tokens that exists: how a text becomes a set of
  /// u8 tokens.
  static IndexedDataset overFile(std::string name, std::vector<uint8_t> index, MappedFile tokens);

  int64_t sequenceCount() const override { return sequences; }
  int64_t sequenceLength(int64_t i) const override;
  /// Throws DataError for a token that is negative or does not fit 32 bits.
  void read(int64_t i, int64_t offset, std::span<int32_t> out) const override;
  const std::string &name() const override { return prefixName; }
  std::string fingerprint() const override;

  TokenType tokenType() const { return type; }
  /// Documents; one less than the entries of the document array.
  int64_t documentCount() const { return documentEntries - 1; }
  /// First sequence of document i; i = documentCount() gives sequenceCount().
  int64_t documentStart(int64_t i) const;
  /// Sum of all sequence lengths.
  int64_t tokenCount() const { return totalTokens; }
  bool isMultimodal() const { return hasModes; }
  /// Byte offset of sequence i in the .bin file.
  int64_t byteOffset(int64_t i) const;
  /// The whole .bin file.
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
