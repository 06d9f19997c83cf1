// The file that describes a checkpoint independently of the plan: the state of the run, its fingerprint, and for each
// stored piece its box in the parameter, its position in a shard and its checksum. The first line is a checksum of all
// other lines.
#pragma once

#include "format/file_marks.h"
#include "runtime/checkpoint/fingerprint.h"
#include "runtime/checkpoint/pieces.h"
#include "runtime/checkpoint/scalar_state.h"

#include <filesystem>

namespace espalier::rt {

/// A piece and its bytes in a shard.
struct StoredPiece {
  Piece piece;
  uint64_t at = 0; ///< byte in the shard's data section
  std::string checksum;
  uint64_t blockBytes = 0; ///< 0: no blocks; else each block of this size, or the shorter last one, has its own
                           ///< checksum
  std::string blocks;      ///< the concatenated block checksums

  /// Returns the unit of verified reads in bytes: a block, or the whole piece.
  uint64_t partBytes() const { return blockBytes ? blockBytes : piece.bytes(); }
  /// Returns the checksum of the part that begins at byte `begin` of the piece.
  std::string partChecksum(uint64_t begin) const;
};

/// The output of one rank: a safetensors file whose tensors are the pieces, in their order and without gaps.
struct Shard {
  std::string file; ///< name within the checkpoint's folder; empty if the rank had no pieces
  uint64_t bytes = 0, headerBytes = 0;
  std::string headerChecksum;
  std::vector<StoredPiece> pieces;
};

/// A file of the folder besides the shards: the run file, the model file, or one of the tokenizer.
struct KeptFile {
  std::string file; ///< path within the checkpoint's folder
  uint64_t bytes = 0;
  std::string checksum;
};

/// The content of manifest.json.
struct Manifest {
  uint64_t sequence = 0; ///< higher than in all older checkpoints of the folder; 0 in those of older versions
  std::string model;
  uint64_t parameters = 0;
  std::vector<std::pair<std::string, int64_t>> mesh; ///< axes of the writing run's mesh, outermost first
  ScalarState state;
  int64_t runSteps = 0; ///< --steps of that run, because some schedules depend on it
  Fingerprint fingerprint;
  bool hasOptimizer = true; ///< false: a converted checkpoint with values only; its training is unknown
  std::vector<Shard> shards;
  std::vector<KeptFile> kept; ///< see kept_files.h

  int64_t ranks() const;
  uint64_t bytes() const;
};

/// Serializes a manifest, with its checksum in the first line.
std::string manifestText(const Manifest &manifest);

/// Parses and validates a manifest: its checksum, the bounds of all sizes and offsets, and that pieces cover each
/// tensor. `name` is the file name for errors. Throws PlanError.
Manifest parseManifest(const std::string &text, const std::string &name);
Manifest readManifest(const std::filesystem::path &checkpoint);

/// Returns the sequence number of a checkpoint that may be damaged, to order the candidates. 0 if not found.
uint64_t readSequence(const std::filesystem::path &checkpoint);

/// Serializes the shard entry of a rank. Each rank passes it in a file to the rank that writes the manifest.
std::string shardText(const Shard &shard);
Shard parseShard(const std::string &text, const std::string &name);

} // namespace espalier::rt
