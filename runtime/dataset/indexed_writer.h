// Writes Megatron's indexed dataset. Tokens stream to the .bin file. Memory holds only four bytes per sequence and four
// per document of the index, so a corpus may be larger than memory.
#pragma once

#include "runtime/dataset/indexed_dataset.h"
#include "runtime/files/atomic_file.h"

#include <vector>

namespace espalier::rt {

/// The content of an .idx file for contiguous sequences: their lengths, and the number of sequences of each document.
struct IndexArrays {
  std::vector<int32_t> lengths;
  std::vector<uint32_t> sequencesPerDocument;
};

/// Returns the bytes of an .idx file.
std::vector<uint8_t> encodeIndex(TokenType type, const IndexArrays &arrays);

/// Throws DataError if PREFIX.bin or PREFIX.idx exists, because a dataset may be hours of work.
void requireNoDataset(const std::string &prefix);

/// Writes one dataset.
class IndexedWriter {
public:
  /// Opens both outputs under temporary names. Throws DataError. Without commit() no file remains.
  IndexedWriter(const std::string &prefix, TokenType type);

  /// Appends tokens to the current sequence. Throws DataError for a token that does not fit the type.
  void addTokens(std::span<const int32_t> tokens);
  /// Ends the sequence. An empty sequence is not recorded.
  void endSequence();
  /// Ends the document.
  void endDocument();
  /// Appends all of another dataset without changing its bytes. Throws DataError if the types differ.
  void addDataset(const IndexedDataset &other);
  /// Writes the index and renames both files. The .bin file is renamed first, so an .idx file implies a complete .bin
  /// file.
  void commit();

  int64_t tokenCount() const { return totalTokens; }
  int64_t documentCount() const { return static_cast<int64_t>(arrays.sequencesPerDocument.size()); }

private:
  std::string prefixName;
  TokenType type;
  AtomicFile binFile, idxFile;
  IndexArrays arrays;
  std::vector<uint8_t> encoded; // the encoded tokens of one call; a member to reuse its memory
  int64_t currentLength = 0, totalTokens = 0;
  uint32_t currentSequences = 0;
};

} // namespace espalier::rt
