// Initial values as a pure function of seed, parameter name and global index, so that every plan of a model starts from
// equal values.
#pragma once

#include "runtime/abi.h"

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace espalier::rt {

/// Returns the stream key of a parameter: FNV-1a of the name, mixed with the plan's seed.
inline uint32_t initialKey(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u ^ (seed * 0x9E3779B97F4A7C15u);
  for (char character : name)
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001B3u;
  return static_cast<uint32_t>(hash ^ (hash >> 32));
}

/// Standard normal numbers 2k and 2k + 1 of a stream, computed in double by Box-Muller from random words 2k and 2k + 1.
/// The even number is the cosine, the odd number the sine.
struct NormalPair {
  double even, odd;
};

/// Returns pair number `pair` of the stream `key`.
inline NormalPair initialNormals(uint32_t key, uint64_t pair) {
  double u1 = (randomBits(key, 0, 0, 0, 2 * pair) + 1.0) * 0x1p-32; // in (0, 1]
  double u2 = randomBits(key, 0, 0, 0, 2 * pair + 1) * 0x1p-32;
  double radius = std::sqrt(-2 * std::log(u1)), angle = 2 * std::numbers::pi * u2;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

/// Returns standard normal number `index` of the stream `key`.
inline double initialNormal(uint32_t key, uint64_t index) {
  NormalPair pair = initialNormals(key, index / 2);
  return index % 2 ? pair.odd : pair.even;
}

/// The kind of a parameter's initial value, with the values of pb::Initialization.
enum class InitialKind { Zeros = 0, Ones = 1, Normal = 2 };

/// Returns the initial value of one element. `index` is row-major in the unpadded global shape.
inline float initialValue(uint32_t key, InitialKind kind, double stddev, uint64_t index) {
  if (kind == InitialKind::Normal)
    return static_cast<float>(stddev * initialNormal(key, index));
  return kind == InitialKind::Ones ? 1.0f : 0.0f;
}

/// Returns the same value from seed and name, for reference implementations.
inline float initialValue(uint64_t seed, std::string_view name, InitialKind kind, double stddev, uint64_t index) {
  return initialValue(initialKey(seed, name), kind, stddev, index);
}

} // namespace espalier::rt
