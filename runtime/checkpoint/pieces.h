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

/// A piece in the arena of a rank.
struct HeldPiece {
  Piece piece;
  uint64_t address = 0; ///< offset in the arena
  bool isSpoken = true; ///< this rank, of those that hold the same elements, is the one that saves them
};

/// The pieces of a rank in the order of its calls. Empty shares are left out.
std::vector<HeldPiece> heldPieces(const Program &program, int rank);

/// Bytes of all pieces, each once.
uint64_t checkpointBytes(const Program &program);

/// Copies between the arena and memory of the host: the only places where a checkpoint touches a rank's memory.
void copyFromRank(const Executor &executor, uint64_t address, std::span<std::byte> to);
void copyToRank(Executor &executor, uint64_t address, std::span<const std::byte> from);

} // namespace espalier::rt
