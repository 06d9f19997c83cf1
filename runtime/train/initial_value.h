// Initial values as a pure function of seed, parameter name and global index, so that every plan of a model starts from
// equal values.
#pragma once

#include "format/abi.h"
#include "format/plan.pb.h"

#include <bit>
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

/// Returns the logarithm of u in (0, 1] with an error of a few units in the last place. The functions of the C library
/// may differ between processors, and do not vectorise.
[[gnu::always_inline]] inline double logarithm(double u) {
#pragma clang fp contract(off)
  constexpr int64_t half = std::bit_cast<int64_t>(std::numbers::sqrt2 / 2), one = std::bit_cast<int64_t>(1.0);
  int64_t bits = std::bit_cast<int64_t>(u), exponent = (bits - half + one) >> 52;
  double mantissa = std::bit_cast<double>(bits - ((exponent - 1023) << 52)); // in [sqrt(1/2), sqrt(2))
  double z = (mantissa - 1) / (mantissa + 1), square = z * z, series = 1.0 / 23;
  for (int odd = 21; odd > 0; odd -= 2) // log m = 2 artanh z
    series = series * square + 1.0 / odd;
  // A 64-bit integer has no vector conversion before AVX-512, one of 32 bits has.
  return static_cast<double>(static_cast<int32_t>(exponent) - 1023) * std::numbers::ln2 + 2 * z * series;
}

/// Returns the cosine and the sine of 2 pi word / 2^32.
[[gnu::always_inline]] inline NormalPair circlePoint(uint32_t word) {
#pragma clang fp contract(off)
  uint32_t quadrant = (word + (1U << 29)) >> 30;
  double x = static_cast<int32_t>(word - (quadrant << 30)) * (std::numbers::pi * 0x1p-31); // in [-pi/4, pi/4)
  double square = x * x, cosine = 1, sine = 1;
  for (int n = 18; n > 0; n -= 2) { // Taylor series
    cosine = 1 - cosine * square * (1.0 / (n * (n - 1)));
    sine = 1 - sine * square * (1.0 / (n * (n + 1)));
  }
  sine *= x;
  double first = quadrant & 1 ? sine : cosine, second = quadrant & 1 ? cosine : sine;
  return {(quadrant + 1) & 2 ? -first : first, quadrant & 2 ? -second : second};
}

/// Returns pair number `pair` of the stream `key`.
[[gnu::always_inline]] inline NormalPair initialNormals(uint32_t key, uint64_t pair) {
#pragma clang fp contract(off)
  double u = (randomBits(key, 0, 0, 0, 2 * pair) + 1.0) * 0x1p-32; // in (0, 1]
  double radius = __builtin_elementwise_sqrt(-2 * logarithm(u));   // std::sqrt sets errno, which prevents vectors
  NormalPair point = circlePoint(randomBits(key, 0, 0, 0, 2 * pair + 1));
  return {radius * point.even, radius * point.odd};
}

/// Returns standard normal number `index` of the stream `key`.
inline double initialNormal(uint32_t key, uint64_t index) {
  NormalPair pair = initialNormals(key, index / 2);
  return index % 2 ? pair.odd : pair.even;
}

/// Returns the initial value of one element. `index` is row-major in the unpadded global shape.
inline float initialValue(uint32_t key, pb::Initialization::Kind kind, double stddev, uint64_t index) {
  if (kind == pb::Initialization::NORMAL)
    return static_cast<float>(stddev * initialNormal(key, index));
  return kind == pb::Initialization::ZEROS ? 0.0f : stddev != 0 ? static_cast<float>(stddev) : 1.0f;
}

/// Returns the same value from seed and name, for reference implementations.
inline float initialValue(uint64_t seed, std::string_view name, pb::Initialization::Kind kind, double stddev,
                          uint64_t index) {
  return initialValue(initialKey(seed, name), kind, stddev, index);
}

} // namespace espalier::rt
