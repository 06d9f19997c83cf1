// Finds the bytes of a rank's pieces in a checkpoint of any plan. Pieces are cut from stored pieces, of which only the
// needed parts are read.
#pragma once

#include "format/checksum.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/overlap.h"
#include "runtime/checkpoint/regular_file.h"

#include <functional>
#include <map>
#include <optional>
#include <vector>

namespace espalier::rt {

/// The bytes [begin, end).
struct ByteRange {
  uint64_t begin = 0, end = 0;

  bool operator==(const ByteRange &) const = default;
};

/// The runs that a wanted piece takes from a stored piece: `from` indexes the stored piece, `to` the wanted piece.
struct Take {
  const Shard *shard = nullptr;
  const StoredPiece *stored = nullptr;
  std::vector<SharedRun> runs;

  /// Returns the bytes of the stored piece to read: every separately checksummed part that contains a run.
  std::vector<ByteRange> bytesRead() const;

  /// Reads these bytes from the shard's file and passes on the bytes of the runs, each with its first element in the
  /// wanted piece. Throws PlanError on a checksum mismatch, possibly after some runs were passed on.
  void read(const RegularFile &file, const std::function<void(int64_t to, std::span<const std::byte>)> &take) const;
  /// Does what read() does, for one of the ranges of bytesRead(). Different threads may read different ranges.
  void readPart(const RegularFile &file, ByteRange range,
                const std::function<void(int64_t to, std::span<const std::byte>)> &take) const;

  /// If all bytes of the range go to one place, returns the element of the wanted piece that comes first.
  std::optional<int64_t> placeOf(ByteRange range) const;
  /// Reads such a range to `to` without a copy between. Throws PlanError on a checksum mismatch.
  void readPart(const RegularFile &file, ByteRange range, std::span<std::byte> to) const;

private:
  /// Returns the first run that ends after a byte.
  std::vector<SharedRun>::const_iterator runAt(uint64_t byte) const;
  void requireChecksum(const RegularFile &file, const RunningChecksum &sum, ByteRange range) const;
};

/// The pieces of a checkpoint by tensor. The manifest must outlive it.
class Sources {
public:
  /// `name` is the checkpoint's name for error messages.
  Sources(const Manifest &manifest, std::string name);

  /// Returns why a tensor cannot be loaded from this checkpoint, or an empty text.
  std::string fault(const std::string &kind, const std::string &parameter) const;

  /// Returns the sources of `wanted`: each element except padding is in one run. Weights of another type are read from
  /// the masters, if stored; masters that were not stored are read from weights. Throws PlanError if elements are
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
  std::map<std::pair<std::string, std::string>, std::vector<Source>> tensors; ///< keyed by kind and name
};

} // namespace espalier::rt
