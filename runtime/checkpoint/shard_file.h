// The file that one rank adds to a checkpoint, and the note that describes the file to the rank that writes the
// manifest.
#pragma once

#include "runtime/checkpoint/manifest.h"

#include <atomic>
#include <functional>

namespace espalier::rt {

/// The layout of a rank's file: a safetensors header, then the pieces that the rank saves, one behind the other.
struct ShardLayout {
  std::vector<HeldPiece> held; ///< pieces by position in the file
  std::string header;
  Shard shard; ///< without the checksums of its pieces; without a file name if `held` is empty

  /// Returns the size of the pieces in bytes.
  uint64_t dataBytes() const { return shard.bytes - shard.headerBytes; }
};

/// Returns the layout of the file of a rank.
ShardLayout shardLayout(const Program &program, int rank);

/// Returns bytes [begin, begin + bytes) of piece `piece`. They stay valid until the next call.
using PieceReader = std::function<std::span<const std::byte>(size_t piece, uint64_t begin, uint64_t bytes)>;

/// Writes the file of a rank and then its note into the hidden folder of a checkpoint, and waits until the file is on
/// the disk. Writes only the note if the rank saves nothing. Reads the pieces in blocks of a few MiB, in their order.
/// Throws RankStopped once `isCancelled` is set; DataError if the disk fails.
void writeShard(const ShardLayout &layout, int rank, const std::filesystem::path &folder, const PieceReader &read,
                const std::atomic<bool> *isCancelled = nullptr);

/// Reads and removes the notes of all ranks. Returns the shards, without those of ranks that saved nothing. Throws
/// PlanError if a note is missing or damaged.
std::vector<Shard> takeShards(const std::filesystem::path &folder, int ranks);

} // namespace espalier::rt
