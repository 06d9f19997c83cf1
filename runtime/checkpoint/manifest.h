// The one file that says what a checkpoint holds, in global terms: where the run stood, what it trained, and for each
// stored piece its place in the parameter, its place in a shard and its checksum. Its own first line is a checksum over
// all that follows.
#pragma once

#include "runtime/checkpoint/fingerprint.h"
#include "runtime/checkpoint/pieces.h"
#include "runtime/train/step_scalars.h"

#include <filesystem>

namespace espalier::rt {

struct StoredPiece {
  Piece piece;
  uint64_t at = 0; ///< byte in the shard's data, behind its header
  std::string checksum;
  uint64_t blockBytes = 0; ///< 0: no blocks; else each so many bytes, the last one fewer, have a checksum of their own
  std::string blocks;      ///< these checksums, one behind the other

  /// Bytes that are read at once to be compared with a checksum: a block's, or the piece's.
  uint64_t partBytes() const { return blockBytes ? blockBytes : piece.bytes(); }
  /// The checksum of the part that begins with byte `begin` of the piece.
  std::string partChecksum(uint64_t begin) const;
};

/// What one rank wrote: a safetensors file whose tensors are the pieces, in their order and without gaps.
struct Shard {
  std::string file; ///< name within the checkpoint's folder; empty where the rank had nothing to write
  uint64_t bytes = 0, headerBytes = 0;
  std::string headerChecksum;
  std::vector<StoredPiece> pieces;
};

struct Manifest {
  uint64_t sequence = 0; ///< higher than that of all older ones of the folder; 0 in those of older programs
  std::string model;
  uint64_t parameters = 0;
  std::vector<std::pair<std::string, int64_t>> mesh; ///< axes of the run that wrote it, outermost first
  ScalarState state;
  int64_t runSteps = 0; ///< --steps of that run: some schedules are laid over them
  Fingerprint fingerprint;
  bool hasOptimizer = true; ///< false: values only, of a conversion; who trained them and how is not known
  std::vector<Shard> shards;

  int64_t ranks() const;
  uint64_t bytes() const;
};

/// Name of the file in a checkpoint's folder.
inline constexpr const char *manifestName = "manifest.json";

std::string manifestText(const Manifest &manifest);

/// Reads what is to be believed: the checksum fits, every size and place is within bounds and the pieces of each tensor
/// add up to the whole. Throws PlanError. `text` names the file in errors as `name`.
Manifest parseManifest(const std::string &text, const std::string &name);
Manifest readManifest(const std::filesystem::path &checkpoint);

/// The sequence number of a checkpoint that may be damaged: for an order to look at them in. 0 where none is found.
uint64_t readSequence(const std::filesystem::path &checkpoint);

/// A rank tells the one that writes the manifest of its shard by a file of its own.
std::string shardText(const Shard &shard);
Shard parseShard(const std::string &text, const std::string &name);

} // namespace espalier::rt
