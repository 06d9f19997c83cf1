// What a rank holds of the model and its optimizer, in global terms, and where it lies in the rank's memory.
#pragma once

#include "runtime/executor.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// A part of one parameter, or of its master or moments: elements [begin, end), in row-major order, of a box. Boxes lie
/// in the padded parameter; elements outside of `shape` are padding.
struct Piece {
  std::string kind; ///< value, master, moment1 or moment2
  std::string name; ///< the parameter's
  pb::DataType type = pb::F32;
  std::vector<int64_t> shape;          ///< of the whole parameter, unpadded
  std::vector<int64_t> offsets, sizes; ///< the box; one entry per dimension
  int64_t begin = 0, end = 0;

  int64_t boxElements() const;
  uint64_t bytes() const;
  /// What tells it from all others: "value block.0.weight [0+4, 8+8] 0:32".
  std::string key() const;
};

/// A piece in the memory of a rank: `offset` bytes behind the place of a bucket's buffer.
struct HeldPiece {
  Piece piece;
  uint32_t call = 0; ///< in whose regions the buffer lies
  const pb::Buffer *buffer = nullptr;
  uint64_t offset = 0;
  bool isSpoken = true; ///< this rank, of those that hold the same elements, is the one that saves them
};

/// The pieces of a rank in the order of its calls. Empty parts are left out.
std::vector<HeldPiece> heldPieces(const Program &program, int rank);

/// What the buffers of a bucket's optimizer state hold, in their order.
std::span<const char *const> stateKinds(const pb::Bucket &bucket);

/// Bytes of all pieces, each once.
uint64_t checkpointBytes(const Program &program);

/// Copies between a rank's piece, from its byte `begin` on, and memory of the host: the only places where a checkpoint
/// touches a rank's memory.
void copyFromRank(const Executor &executor, const HeldPiece &held, uint64_t begin, std::span<std::byte> to);
void copyToRank(Executor &executor, const HeldPiece &held, uint64_t begin, std::span<const std::byte> from);

} // namespace espalier::rt
