// Where the bytes of a rank's pieces come from in a checkpoint, whatever plan wrote it: its own pieces are cut out of
// the stored ones, and of these no more is read than has to be.
#pragma once

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/overlap.h"
#include "runtime/checkpoint/regular_file.h"

#include <functional>
#include <map>
#include <vector>

namespace espalier::rt {

/// Bytes [begin, end).
struct ByteRange {
  uint64_t begin = 0, end = 0;

  bool operator==(const ByteRange &) const = default;
};

/// What a piece takes from a stored one; `from` of a run counts in the stored piece, `to` in the one that takes.
struct Take {
  const Shard *shard = nullptr;
  const StoredPiece *stored = nullptr;
  std::vector<SharedRun> runs;

  /// The bytes of the stored piece that are read: every part with a checksum of its own in which a run lies.
  std::vector<ByteRange> bytesRead() const;

  /// Reads them from the shard's file and hands on the bytes of the runs, each with the element of the taking piece
  /// where they begin. Throws PlanError where bytes do not fit their checksum, when some were handed on already.
  void read(const RegularFile &file, const std::function<void(int64_t to, std::span<const std::byte>)> &take) const;
};

/// The pieces of a checkpoint by tensor. The manifest outlives it.
class Sources {
public:
  /// Errors name the checkpoint as `name`.
  Sources(const Manifest &manifest, std::string name);

  /// Why a tensor cannot be taken from here, empty where it can.
  std::string fault(const std::string &kind, const std::string &parameter) const;

  /// What `wanted` is made of: each of its elements but the padding is in one run. Weights of another type come from
  /// the masters, where there are any, and masters that were not kept from weights. Throws PlanError where elements are
  /// missing.
  std::vector<Take> takesFor(const Piece &wanted) const;

private:
  struct Source {
    const Shard *shard;
    const StoredPiece *stored;
  };

  const std::vector<Source> *find(const std::string &kind, const std::string &parameter) const;
  const std::vector<Source> *sourcesFor(const Piece &wanted) const;

  std::string name;
  std::map<std::pair<std::string, std::string>, std::vector<Source>> tensors; ///< by kind and name
};

} // namespace espalier::rt
