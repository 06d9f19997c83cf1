// Whether the files of a checkpoint are those that were written.
#pragma once

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/regular_file.h"

#include <functional>

namespace espalier::rt {

/// Reads a piece, handing it on in parts as they come; throws PlanError at the end where its bytes do not fit its
/// checksum.
void readPiece(const RegularFile &file, const Shard &shard, const StoredPiece &stored,
               const std::function<void(uint64_t begin, std::span<const std::byte>)> &take);

/// What is wrong with the shards of a checkpoint, a sentence each: names, sizes and headers, or every byte.
enum class Depth { Headers, EveryByte };
std::vector<std::string> shardFaults(const std::filesystem::path &checkpoint, const Manifest &manifest, Depth depth);

} // namespace espalier::rt
