// The marks that tell what a file or folder of Espalier is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace espalier::rt {

/// The name of the manifest in a checkpoint's folder.
inline constexpr const char *manifestName = "manifest.json";

/// The tag of Plan.checksum, the last field of a plan file. Eight little-endian bytes follow.
inline constexpr std::string_view sealTag = "\xf9\x7f";
inline constexpr size_t sealBytes = sealTag.size() + sizeof(uint64_t);

/// Returns whether the bytes end with a plan's checksum, which may be wrong.
bool hasSeal(std::string_view bytes);

/// Returns whether a regular file ends with a plan's checksum, which may be wrong.
bool isSealed(const std::filesystem::path &file);

} // namespace espalier::rt
