// Packs whole documents into rows (samples) whose attention work is balanced.
//
// The attention work of a row is the number of pairs (token, token that it attends to): a document of n tokens has
// n (n + 1) / 2 of them, and a token of padding attends to itself. The work of a range of positions is the number of
// pairs of its tokens.
//
// The rows of one step have nearly equal work, so that every division of a step into replicas and micro-batches is
// balanced. Inside a row, documents are arranged so that the context ranks of zigzag order have nearly equal work over
// a step. Rows depend on the documents, the seed, the sequence length and the global batch. They do not depend on the
// plan's split.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace espalier::rt {

/// A range of the tokens of one sequence, or padding.
struct PackedPiece {
  int32_t sequence; ///< -1: padding
  int32_t offset, length;
};

/// Rows of seqLength + 1 tokens. The last token of a row is a label alone. Rows [k * batch, (k + 1) * batch) belong to
/// one step.
struct PackedRows {
  int64_t seqLength = 0;
  std::vector<PackedPiece> pieces;
  std::vector<int64_t> starts = {0}; ///< of the rows in `pieces`, and the end

  int64_t count() const { return std::ssize(starts) - 1; }
  std::span<const PackedPiece> row(int64_t i) const {
    return std::span(pieces).subspan(starts[i], starts[i + 1] - starts[i]);
  }
};

/// Cuts a sequence of `length` tokens into pieces of at most seqLength + 1 tokens, which share one token so that every
/// token but the first is a label once. A sequence with less than two tokens has no label and gives no piece.
void cutSequence(int32_t sequence, int64_t length, int64_t seqLength, std::vector<PackedPiece> &pieces);

/// Packs the pieces, in this order, by windows of 64 steps. Each piece is in one row. The number of rows is a multiple
/// of `batch`, and there are at least `batch` pieces.
PackedRows packBalanced(std::vector<PackedPiece> pieces, int64_t seqLength, int64_t batch, uint32_t seed);

/// Adds the attention work of a row's positions to equal chunks of these positions.
void addWork(std::span<const PackedPiece> row, int64_t seqLength, std::span<int64_t> chunks);

/// The division of a step's rows: row p belongs to replica (p / microBatch) % replicas.
struct StepSplit {
  int64_t microBatch = 1, replicas = 1, contextRanks = 1;
  bool isZigzag = false; ///< a context rank has two chunks of a row (format/zigzag.h) instead of one
};

/// The documents and the attention work of one step.
struct PackedStep {
  int64_t documents = 0; ///< pieces of documents
  int64_t tokens = 0;    ///< of documents, without padding
  int64_t longest = 0;   ///< tokens of the longest piece
  /// (most - least) / most of the attention work: between replicas, and the largest of those between the context ranks
  /// of one replica.
  double replicaImbalance = 0, contextImbalance = 0;
};

/// Describes the step of `batch` rows that begins after `consumed` rows. The rows repeat at their end.
PackedStep describeStep(const PackedRows &rows, int64_t consumed, int64_t batch, const StepSplit &split);

} // namespace espalier::rt
