// Every piece has a checksum, and large pieces have one per block.
#include "runtime/checkpoint/shard_file.h"

#include "format/checksum.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/files/atomic_file.h"
#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

using Path = std::filesystem::path;

/// The block size of checksums, so that a rank of another plan need not read much more than it needs.
constexpr uint64_t blockBytes = uint64_t(4) << 20;
constexpr uint64_t maxShardText = uint64_t(1) << 30;

Path noteFile(const Path &folder, int rank) { return folder / fmt::format("rank-{:05}.json", rank); }

TensorEntry entryOf(const Piece &piece, uint64_t at) {
  bool isBox = piece.begin == 0 && piece.end == piece.boxElements();
  return {piece.kind + "/" + piece.name, piece.type, isBox ? piece.sizes : std::vector{piece.end - piece.begin}, at,
          piece.bytes()};
}

} // namespace

ShardLayout shardLayout(const Program &program, int rank) {
  ShardLayout layout;
  layout.held = heldPieces(program, rank);
  std::erase_if(layout.held, [](const HeldPiece &each) { return !each.isSpoken; });
  if (layout.held.empty())
    return layout;
  std::vector<TensorEntry> entries;
  uint64_t end = 0;
  for (const HeldPiece &each : layout.held) {
    entries.push_back(entryOf(each.piece, end));
    layout.shard.pieces.push_back({each.piece, end, "", 0, ""});
    end += each.piece.bytes();
  }
  layout.header = safetensorsHeader(entries, {});
  layout.shard.file = fmt::format("rank-{:05}.safetensors", rank);
  layout.shard.headerBytes = layout.header.size();
  layout.shard.bytes = layout.header.size() + end;
  layout.shard.headerChecksum = checksumText(std::as_bytes(std::span(layout.header)));
  return layout;
}

void writeShard(const ShardLayout &layout, int rank, const Path &folder, const PieceReader &read,
                const std::atomic<bool> *isCancelled) {
  Shard shard = layout.shard;
  if (!shard.file.empty()) {
    AtomicFile file((folder / shard.file).string());
    file.write(layout.header.data(), layout.header.size());
    for (size_t i = 0; i < layout.held.size(); ++i) {
      StoredPiece &stored = shard.pieces[i];
      RunningChecksum sum;
      uint64_t bytes = stored.piece.bytes();
      stored.blockBytes = bytes > blockBytes ? blockBytes : 0; // a single block needs no checksum besides the piece's
      for (uint64_t begin = 0; begin < bytes; begin += blockBytes) {
        if (isCancelled && isCancelled->load(std::memory_order_relaxed))
          throw RankStopped();
        std::span<const std::byte> block = read(i, begin, std::min(blockBytes, bytes - begin));
        sum.add(block);
        if (stored.blockBytes)
          stored.blocks += checksumText(block);
        file.write(block);
      }
      stored.checksum = sum.text();
    }
    file.commit(Flush::ToSystem);
  }
  writeWhole(noteFile(folder, rank), shardText(shard), Flush::ToSystem); // the manifest takes its place on the disk
  if (isCancelled && isCancelled->load(std::memory_order_relaxed))
    throw RankStopped();
  if (!shard.file.empty())
    syncFile(folder / shard.file);
}

std::vector<Shard> takeShards(const Path &folder, int ranks) {
  std::vector<Shard> shards;
  for (int rank = 0; rank < ranks; ++rank) {
    Path note = noteFile(folder, rank);
    Shard shard = parseShard(readText(note, maxShardText), note.string());
    if (!shard.file.empty())
      shards.push_back(std::move(shard));
    std::filesystem::remove(note);
  }
  return shards;
}

} // namespace espalier::rt
