// SHA-256 names cached index files and identifies data in reports. HMAC signs messages between launchers. OpenSSL
// computes both.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace espalier::rt {

using Digest = std::array<uint8_t, 32>;

/// Returns the SHA-256 digest of `bytes`.
Digest sha256Digest(std::span<const uint8_t> bytes);

/// Returns the HMAC-SHA256 of `bytes` under `key`.
Digest hmacSha256(std::span<const uint8_t> key, std::span<const uint8_t> bytes);

/// Returns whether two digests are equal. The time does not depend on where they differ.
bool isEqualDigest(const Digest &a, const Digest &b);

/// Returns the SHA-256 digest of `bytes` as 64 lower-case hexadecimal digits.
std::string sha256(std::span<const uint8_t> bytes);

} // namespace espalier::rt
