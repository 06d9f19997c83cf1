// SHA-256 (FIPS 180-4): names cached index files and identifies data in reports.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace espalier::rt {

/// The digest of `bytes` as 64 lower-case hexadecimal digits.
std::string sha256(std::span<const uint8_t> bytes);

} // namespace espalier::rt
