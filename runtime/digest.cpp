// The 64 constants are the first 32 bits of the fractional parts of the cube roots of the first 64
// primes.
#include "runtime/digest.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <vector>

namespace espalier::rt {

namespace {

constexpr std::array<uint32_t, 64> roundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void mixBlock(std::array<uint32_t, 8> &state, const uint8_t *block) {
  std::array<uint32_t, 64> words;
  for (int i = 0; i < 16; ++i)
    words[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 | uint32_t{block[4 * i + 2]} << 8 |
               block[4 * i + 3];
  for (int i = 16; i < 64; ++i) {
    uint32_t a = words[i - 15], b = words[i - 2];
    words[i] = words[i - 16] + words[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) +
               (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; ++i) {
    uint32_t high = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) +
                    roundConstants[i] + words[i];
    uint32_t low = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + high, d = c, c = b, b = a, a = high + low;
  }
  const uint32_t mixed[] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i)
    state[i] += mixed[i];
}

} // namespace

Digest sha256Digest(std::span<const uint8_t> bytes) {
  std::array<uint32_t, 8> state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  size_t whole = bytes.size() / 64 * 64;
  for (size_t at = 0; at < whole; at += 64)
    mixBlock(state, bytes.data() + at);
  // The last block: a one bit, zeros, and the length in bits in the last eight bytes.
  std::vector<uint8_t> tail(bytes.begin() + static_cast<ptrdiff_t>(whole), bytes.end());
  tail.push_back(0x80);
  tail.resize(tail.size() <= 56 ? 64 : 128);
  uint64_t bits = uint64_t{bytes.size()} * 8;
  for (int i = 0; i < 8; ++i)
    tail[tail.size() - 1 - i] = static_cast<uint8_t>(bits >> (8 * i));
  for (size_t at = 0; at < tail.size(); at += 64)
    mixBlock(state, tail.data() + at);
  Digest digest;
  for (size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

std::string sha256(std::span<const uint8_t> bytes) {
  std::string text;
  for (uint8_t byte : sha256Digest(bytes))
    text += fmt::format("{:02x}", byte);
  return text;
}

Digest hmacSha256(std::span<const uint8_t> key, std::span<const uint8_t> bytes) {
  std::array<uint8_t, 64> block{};
  if (key.size() > block.size())
    std::ranges::copy(sha256Digest(key), block.begin());
  else
    std::ranges::copy(key, block.begin());
  auto padded = [&](uint8_t pad, std::span<const uint8_t> text) {
    std::vector<uint8_t> all;
    for (uint8_t byte : block)
      all.push_back(byte ^ pad);
    all.insert(all.end(), text.begin(), text.end());
    return sha256Digest(all);
  };
  return padded(0x5c, padded(0x36, bytes));
}

bool isEqualDigest(const Digest &a, const Digest &b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= a[i] ^ b[i];
  return difference == 0;
}

} // namespace espalier::rt
