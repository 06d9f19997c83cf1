// Writes Megatron's indexed dataset. Tokens stream to the .bin file; of the index only four bytes a
// sequence and four a document are held, so a corpus larger than memory is written in bounded
// memory.
#pragma once

#include "runtime/data/atomic_file.h"
#include "runtime/data/indexed_dataset.h"

#include <vector>

namespace espalier::rt {

/// The .idx content for sequences laid one after another: their lengths, and how many each document
/// has.
struct IndexArrays {
  std::vector<int32_t> lengths;
  std::vector<uint32_t> sequencesPerDocument;
};

/// The bytes of an .idx file.
std::vector<uint8_t> encodeIndex(TokenType type, const IndexArrays &arrays);

/// Throws DataError if PREFIX.bin or PREFIX.idx is there: a dataset may be hours of work.
void requireNoDataset(const std::string &prefix);

class IndexedWriter {
public:
  /// Opens both outputs under temporary names; throws DataError. Without commit() nothing remains.
  IndexedWriter(const std::string &prefix, TokenType type);

  /// Appends tokens to the current sequence. Throws DataError for a token outside the type.
  void addTokens(std::span<const int32_t> tokens);
  /// Ends the sequence. A sequence without tokens is not recorded.
  void endSequence();
  void endDocument();
  /// Appends a whole other set of the same type, bytes unchanged; throws DataError when the types
  /// differ.
  void addDataset(const IndexedDataset &other);
  /// Writes the index and gives both files their names: .bin first, so an .idx implies a whole
  /// .bin.
  void commit();

  int64_t tokenCount() const { return totalTokens; }
  int64_t documentCount() const { return static_cast<int64_t>(arrays.sequencesPerDocument.size()); }

private:
  std::string prefixName;
  TokenType type;
  AtomicFile binFile, idxFile;
  IndexArrays arrays;
  std::vector<uint8_t> encoded; // one call's tokens in file form, kept for its capacity
  int64_t currentLength = 0, totalTokens = 0;
  uint32_t currentSequences = 0;
};

} // namespace espalier::rt
