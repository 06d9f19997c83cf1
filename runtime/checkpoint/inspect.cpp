// Files are opened without following links, because a checkpoint folder is self-contained.
#include "runtime/checkpoint/inspect.h"

#include "format/checksum.h"
#include "runtime/status.h"

#include <fmt/format.h>

namespace espalier::rt {
namespace {

constexpr size_t mostFaults = 64;

void requireHeader(const RegularFile &file, const Shard &shard) {
  if (file.size() != shard.bytes)
    throw PlanError(
        fmt::format("{}: damaged: {} bytes, {} were written", file.path().string(), file.size(), shard.bytes));
  RunningChecksum sum;
  file.readParts(0, shard.headerBytes, [&](uint64_t, std::span<const std::byte> part) { sum.add(part); });
  if (sum.text() != shard.headerChecksum)
    throw PlanError(fmt::format("{}: damaged: its header does not fit its checksum", file.path().string()));
}

void addFaults(const std::filesystem::path &path, const Shard &shard, Depth depth, std::vector<std::string> &faults) {
  try {
    RegularFile file(path, Links::Refused);
    requireHeader(file, shard);
    for (const StoredPiece &stored : shard.pieces)
      if (depth == Depth::EveryByte)
        try {
          readPiece(file, shard, stored, [](uint64_t, std::span<const std::byte>) {});
        } catch (const PlanError &error) {
          faults.push_back(error.what());
        }
  } catch (const PlanError &error) {
    faults.push_back(error.what());
  }
}

/// Adds a fault of a file that is kept beside the shards.
void addFaults(const std::filesystem::path &path, const KeptFile &kept, std::vector<std::string> &faults) {
  try {
    RegularFile file(path, Links::Refused);
    RunningChecksum sum;
    file.readParts(0, file.size(), [&](uint64_t, std::span<const std::byte> part) { sum.add(part); });
    if (file.size() != kept.bytes || sum.text() != kept.checksum)
      throw PlanError(fmt::format("{}: damaged: it does not fit its checksum", path.string()));
  } catch (const PlanError &error) {
    faults.push_back(error.what());
  }
}

} // namespace

void readPiece(const RegularFile &file, const Shard &shard, const StoredPiece &stored,
               const std::function<void(uint64_t, std::span<const std::byte>)> &take) {
  RunningChecksum sum;
  file.readParts(shard.headerBytes + stored.at, stored.piece.bytes(),
                 [&](uint64_t begin, std::span<const std::byte> part) {
                   sum.add(part);
                   take(begin, part);
                 });
  if (sum.text() != stored.checksum)
    throw PlanError(fmt::format("{}: damaged: {} of '{}' does not fit its checksum", file.path().string(),
                                stored.piece.kind, stored.piece.name));
}

std::vector<std::string> shardFaults(const std::filesystem::path &checkpoint, const Manifest &manifest, Depth depth) {
  std::vector<std::string> faults;
  for (const Shard &shard : manifest.shards)
    if (faults.size() < mostFaults)
      addFaults(checkpoint / shard.file, shard, depth, faults);
  for (const KeptFile &kept : manifest.kept)
    if (depth == Depth::EveryByte && faults.size() < mostFaults)
      addFaults(checkpoint / kept.file, kept, faults);
  return faults;
}

} // namespace espalier::rt
