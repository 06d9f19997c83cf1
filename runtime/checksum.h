// What tells damaged bytes: XXH3 of 64 bits. It protects from disks and mistakes, not from malice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <span>
#include <string>
#include <xxhash.h>

namespace espalier::rt {

inline uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

/// As 16 hexadecimal digits, for JSON, whose numbers do not hold 64 bits.
inline std::string checksumText(std::span<const std::byte> bytes) { return fmt::format("{:016x}", checksum(bytes)); }

} // namespace espalier::rt
