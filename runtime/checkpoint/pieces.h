// The pieces of model and optimizer that a rank holds, in coordinates of the whole tensors, and their addresses.
#pragma once

#include "runtime/executor.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// Elements [begin, end), in row-major order, of a box of one parameter, or of its master or state tensors. Boxes lie
/// in the padded parameter; elements outside of `shape` are padding.
struct Piece {
  std::string kind; ///< value, master, or a state tensor of optimizers.h, such as moment1
  std::string name; ///< the parameter's
  pb::DataType type = pb::F32;
  std::vector<int64_t> shape;          ///< of the whole parameter, unpadded
  std::vector<int64_t> offsets, sizes; ///< the box; one entry per dimension
  int64_t begin = 0, end = 0;

  int64_t boxElements() const;
  uint64_t bytes() const;
  /// Returns a unique key: "value block.0.weight [0+4, 8+8] 0:32".
  std::string key() const;
};

/// A piece in the memory of a rank, `offset` bytes after the start of a bucket's buffer.
struct HeldPiece {
  Piece piece;
  uint32_t call = 0; ///< the call whose regions contain the buffer
  const pb::Buffer *buffer = nullptr;
  uint64_t offset = 0;
  bool isSpoken = true; ///< whether this rank saves the elements, of all ranks that hold them
};

/// Returns the pieces of a rank in the order of its calls, without empty ones.
std::vector<HeldPiece> heldPieces(const Program &program, int rank);

/// Returns the kinds of the buffers of a bucket's optimizer state, in their order.
std::vector<const char *> stateKinds(const pb::Bucket &bucket);

/// Returns the bytes of the pieces that each rank saves, by rank.
std::vector<uint64_t> savedBytes(const Program &program);

/// Returns the bytes of all pieces, each counted once.
uint64_t checkpointBytes(const Program &program);

/// Returns the place of a piece in the device memory of its rank.
DeviceRange placeOf(const Executor &executor, const HeldPiece &held);

/// Copy between a rank's piece, from byte `begin` on, and host memory.
void copyFromRank(const Executor &executor, const HeldPiece &held, uint64_t begin, std::span<std::byte> to);
void copyToRank(Executor &executor, const HeldPiece &held, uint64_t begin, std::span<const std::byte> from);

} // namespace espalier::rt
