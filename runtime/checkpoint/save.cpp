// All ranks agree on each of three steps: create the folder, write the shards, commit the manifest. The disk may fail
// in any step.
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checksum.h"
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

std::string rankFile(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

/// The file in which a rank passes its shard entry to the leader. Removed before the commit.
Path noteFile(const Path &folder, int rank) { return folder / fmt::format("rank-{:05}.json", rank); }

TensorEntry entryOf(const Piece &piece, uint64_t at) {
  bool isBox = piece.begin == 0 && piece.end == piece.boxElements();
  return {piece.kind + "/" + piece.name, piece.type, isBox ? piece.sizes : std::vector{piece.end - piece.begin}, at,
          piece.bytes()};
}

/// Appends a piece of the rank's memory to the file and records its checksums.
void writePiece(const Executor &executor, const HeldPiece &held, AtomicFile &file, StoredPiece &stored) {
  RunningChecksum sum;
  uint64_t bytes = held.piece.bytes();
  std::vector<std::byte> block(std::min(bytes, blockBytes));
  stored.blockBytes = bytes > blockBytes ? blockBytes : 0; // a single block needs no checksum besides the piece's
  for (uint64_t begin = 0; begin < bytes; begin += blockBytes) {
    std::span<std::byte> taken = std::span(block).first(std::min(blockBytes, bytes - begin));
    copyFromRank(executor, held, begin, taken);
    sum.add(taken);
    if (stored.blockBytes)
      stored.blocks += checksumText(taken);
    file.write(taken.data(), taken.size());
  }
  stored.checksum = sum.text();
}

std::string mebibytes(uint64_t bytes) { return fmt::format("{:.1f} MiB", bytes / 1048576.0); }

} // namespace

void Checkpoints::requireRoom() const {
  uint64_t each = checkpointBytes(program), free = folder.freeBytes();
  if (free < each)
    throw PlanError(fmt::format("{}: a checkpoint takes {}, {} are free there; make room or give another folder",
                                folder.path().string(), mebibytes(each), mebibytes(free)));
  if (options.saveEvery <= 0)
    return;
  int64_t due = (options.steps + options.saveEvery - 1) / options.saveEvery;
  if (options.keep > 0)
    due = std::min(due, options.keep + 1); // the new checkpoint is complete before the oldest is removed
  fmt::print(stderr, "{}: note: {} are kept{}\n", folder.path().string(),
             options.keep > 0 ? fmt::format("the newest {} checkpoints", options.keep) : "all checkpoints",
             options.keep > 0 ? "" : "; --keep N keeps the newest N");
  if (each > 0 && static_cast<uint64_t>(due) > free / each)
    fmt::print(stderr, "{}: warning: {} checkpoints of {} are due, {} are free there: room for {}\n",
               folder.path().string(), due, mebibytes(each), mebibytes(free), free / each);
}

Shard Checkpoints::writeShard(Executor &executor, int64_t step) const {
  std::vector<HeldPiece> held = heldPieces(program, executor.rankProgram().rank);
  std::erase_if(held, [](const HeldPiece &each) { return !each.isSpoken; });
  Shard shard;
  if (held.empty())
    return shard;
  std::vector<TensorEntry> entries;
  uint64_t end = 0;
  for (const HeldPiece &each : held) {
    entries.push_back(entryOf(each.piece, end));
    shard.pieces.push_back({each.piece, end, "", 0, ""});
    end += each.piece.bytes();
  }
  std::string header = safetensorsHeader(entries, {});
  shard.file = rankFile(executor.rankProgram().rank);
  shard.headerBytes = header.size();
  shard.bytes = header.size() + end;
  shard.headerChecksum = checksumText(std::as_bytes(std::span(header)));
  AtomicFile file((folder.partial(step) / shard.file).string());
  file.write(header.data(), header.size());
  for (size_t i = 0; i < held.size(); ++i)
    writePiece(executor, held[i], file, shard.pieces[i]);
  file.commit();
  return shard;
}

void Checkpoints::commit(const ScalarState &state) {
  const pb::Plan &plan = program.plan();
  Manifest manifest;
  manifest.sequence = folder.nextSequence();
  manifest.model = plan.model();
  manifest.parameters = plan.parameter_count();
  const std::array sizes = axisFields(plan.mesh());
  for (size_t axis = 0; axis < sizes.size(); ++axis)
    manifest.mesh.emplace_back(meshAxes[axis], sizes[axis]);
  manifest.state = state;
  manifest.runSteps = options.steps;
  manifest.fingerprint = continuation.fingerprint;
  Path partial = folder.partial(state.step);
  for (int rank = 0; rank < program.mesh().ranks(); ++rank) {
    Path note = noteFile(partial, rank);
    Shard shard = parseShard(readText(note, maxShardText), note.string());
    if (!shard.file.empty())
      manifest.shards.push_back(std::move(shard));
    std::filesystem::remove(note);
  }
  lastGood = folder.commit(state.step, manifestText(manifest));
}

bool Checkpoints::save(Executor &executor, Agreement &agreement, const ScalarState &state, bool isLast) {
  bool isLeader = agreement.isLeader();
  std::string fault; // of the first rank with an error, the same on all ranks
  auto isDone = [&](bool isMine, auto &&work) {
    std::string own;
    try {
      if (isMine)
        work();
    } catch (const std::exception &error) {
      own = error.what();
    }
    fault = agreement.first(own);
    return fault.empty();
  };
  auto write = [&] {
    std::string note = shardText(writeShard(executor, state.step));
    writeWhole(noteFile(folder.partial(state.step), executor.rankProgram().rank), note);
  };
  bool isWritten = isDone(isLeader, [&] { folder.begin(state.step); }) && isDone(true, write) &&
                   isDone(isLeader, [&] { commit(state); });
  if (!isLeader)
    return isWritten;
  if (isWritten) {
    try {
      if (options.keep > 0)
        folder.prune(options.keep, apart);
    } catch (const std::exception &error) {
      fmt::print(stderr, "espalier: warning: an old checkpoint cannot be removed: {}\n", error.what());
    }
    return true;
  }
  folder.discard(state.step);
  std::string sentence =
      fmt::format("the checkpoint of step {} is not written: {}; the last good one is {}", state.step, fault,
                  lastGood.empty() ? "none" : (folder.path() / lastGood).string());
  if (isLast)
    throw PlanError(sentence);
  fmt::print(stderr, "espalier: warning: {}; training continues and the next save tries again\n", sentence);
  return false;
}

} // namespace espalier::rt
