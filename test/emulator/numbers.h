// The number formats of PTX registers as C++ types, with conversions from and to double that round once.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace espalier::emulator {

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
/// Two values in a 32-bit register, the first in the low half.
template <class Half> struct Two {
  Half low, high;
};

template <class T> inline constexpr bool isHalf = std::is_same_v<T, F16> || std::is_same_v<T, BF16>;
template <class T> inline constexpr bool isFloat = std::is_floating_point_v<T> || isHalf<T>;

inline double widen(double x) { return x; }
inline float widen(float x) { return x; }
inline float widen(F16 x) { return static_cast<float>(std::bit_cast<_Float16>(x.bits)); }
inline float widen(BF16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

/// Returns the value one unit in the last place closer to or farther from zero.
template <class Float> Float neighbour(Float x, bool outward) {
  using Bits = std::conditional_t<sizeof(Float) == 4, uint32_t, uint64_t>;
  return std::bit_cast<Float>(std::bit_cast<Bits>(x) + (outward ? Bits(1) : ~Bits(0)));
}

/// Converts x to float, rounding to odd: if inexact, returns the neighbour whose last bit is odd. Rounding this to
/// fewer bits gives the same as rounding x.
inline float roundToOdd(double x) {
  float nearest = static_cast<float>(x);
  if (std::isnan(x) || nearest == x || (std::bit_cast<uint32_t>(nearest) & 1))
    return nearest;
  if (nearest == 0) // below the smallest subnormal, whose last bit is odd
    return std::copysign(std::numeric_limits<float>::denorm_min(), static_cast<float>(x));
  return neighbour(nearest, std::fabs(static_cast<double>(nearest)) < std::fabs(x));
}

/// Returns a + b, rounded to odd.
inline double addToOdd(double a, double b) {
  double sum = a + b, back = sum - a;
  double rest = (a - (sum - back)) + (b - back);
  if (!std::isfinite(sum) || rest == 0 || (std::bit_cast<uint64_t>(sum) & 1))
    return sum;
  return neighbour(sum, (rest > 0) == (sum > 0));
}

/// Rounds to nearest, ties to even. NaN becomes PTX's canonical NaN.
template <class T> T narrow(double x) {
  if constexpr (std::is_same_v<T, F16>) {
    return {std::isnan(x) ? uint16_t(0x7fff) : std::bit_cast<uint16_t>(static_cast<_Float16>(roundToOdd(x)))};
  } else if constexpr (std::is_same_v<T, BF16>) {
    if (std::isnan(x))
      return {0x7fff};
    uint32_t bits = std::bit_cast<uint32_t>(roundToOdd(x));
    return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
  } else {
    return static_cast<T>(x);
  }
}

/// Rounds towards zero.
template <class T> T truncate(double x) {
  T nearest = narrow<T>(x);
  if (std::isnan(x) || std::fabs(static_cast<double>(widen(nearest))) <= std::fabs(x))
    return nearest;
  if constexpr (isHalf<T>)
    return {static_cast<uint16_t>(nearest.bits - 1)};
  else
    return neighbour(nearest, /*outward=*/false);
}

/// Returns a * b + c, rounded once.
template <class T> T fusedMultiplyAdd(T a, T b, T c) {
  if constexpr (isHalf<T>)
    return narrow<T>(addToOdd(static_cast<double>(widen(a)) * widen(b), widen(c)));
  else
    return std::fma(a, b, c);
}

/// Flushes subnormal numbers to zero with their sign.
inline float flush(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x; }

} // namespace espalier::emulator
