#include "runtime/digest.h"

#include <fmt/ranges.h>
#include <new>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace espalier::rt {

Digest sha256Digest(std::span<const uint8_t> bytes) {
  Digest digest;
  // OpenSSL's digests fail only for lack of memory.
  if (!EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr))
    throw std::bad_alloc();
  return digest;
}

std::string sha256(std::span<const uint8_t> bytes) { return fmt::format("{:02x}", fmt::join(sha256Digest(bytes), "")); }

Digest hmacSha256(std::span<const uint8_t> key, std::span<const uint8_t> bytes) {
  Digest digest;
  if (!HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes.data(), bytes.size(), digest.data(), nullptr))
    throw std::bad_alloc();
  return digest;
}

bool isEqualDigest(const Digest &a, const Digest &b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

} // namespace espalier::rt
