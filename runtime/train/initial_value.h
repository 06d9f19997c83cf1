// Initial values as a pure function of seed, parameter name and global index: the same under every
// plan.
#pragma once

#include "runtime/abi.h"

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace espalier::rt {

/// FNV-1a of the name, mixed with the plan's seed.
inline uint32_t initialKey(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u ^ (seed * 0x9E3779B97F4A7C15u);
  for (char character : name)
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001B3u;
  return static_cast<uint32_t>(hash ^ (hash >> 32));
}

/// Standard normal numbers 2k and 2k + 1 of a stream: Box-Muller on bits 2k and 2k + 1, cosine for
/// the even one, sine for the odd one, in double.
struct NormalPair {
  double even, odd;
};

inline NormalPair initialNormals(uint32_t key, uint64_t pair) {
  double u1 = (randomBits(key, 0, 0, 0, 2 * pair) + 1.0) * 0x1p-32; // in (0, 1]
  double u2 = randomBits(key, 0, 0, 0, 2 * pair + 1) * 0x1p-32;
  double radius = std::sqrt(-2 * std::log(u1)), angle = 2 * std::numbers::pi * u2;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

inline double initialNormal(uint32_t key, uint64_t index) {
  NormalPair pair = initialNormals(key, index / 2);
  return index % 2 ? pair.odd : pair.even;
}

/// What a parameter's element is before training; kinds are those of pb::Initialization. `index` is
/// row-major in the unpadded global shape.
enum class InitialKind { Zeros = 0, Ones = 1, Normal = 2 };

inline float initialValue(uint32_t key, InitialKind kind, double stddev, uint64_t index) {
  if (kind == InitialKind::Normal)
    return static_cast<float>(stddev * initialNormal(key, index));
  return kind == InitialKind::Ones ? 1.0f : 0.0f;
}

/// The same from names, for oracles.
inline float initialValue(uint64_t seed, std::string_view name, InitialKind kind, double stddev, uint64_t index) {
  return initialValue(initialKey(seed, name), kind, stddev, index);
}

} // namespace espalier::rt
