// Checks that the files of a checkpoint are unchanged since they were written.
#pragma once

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/regular_file.h"

#include <functional>

namespace espalier::rt {

/// Reads a piece and passes its parts to `take` as they arrive. Throws PlanError at the end if the checksum does not
/// match.
void readPiece(const RegularFile &file, const Shard &shard, const StoredPiece &stored,
               const std::function<void(uint64_t begin, std::span<const std::byte>)> &take);

/// How much shardFaults() checks: names, sizes and headers, or every byte.
enum class Depth { Headers, EveryByte };
/// Returns one sentence per error in the shards of a checkpoint.
std::vector<std::string> shardFaults(const std::filesystem::path &checkpoint, const Manifest &manifest, Depth depth);

} // namespace espalier::rt
