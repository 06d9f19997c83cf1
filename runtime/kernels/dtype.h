// Scalar conversions of the 16-bit storage formats. The vector conversions in cpu/ must agree bit for bit.
#pragma once

#include <bit>
#include <cstdint>

namespace espalier::rt {

/// The storage type of an element. The values are those of pb::DataType.
enum class Storage : int { F32 = 0, BF16 = 1, F16 = 2, I32 = 3 };

constexpr int64_t bytesOf(Storage storage) { return storage == Storage::BF16 || storage == Storage::F16 ? 2 : 4; }

inline float bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

/// Rounds to nearest even. A NaN becomes quiet, because its payload may lie in the dropped half.
inline uint16_t floatToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

inline float f16ToFloat(uint16_t bits) {
  uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  uint32_t magnitude = bits & 0x7FFFu;
  if (magnitude >= 0x7C00u) // infinity or NaN has the largest exponent in both formats
    return std::bit_cast<float>(sign | 0x7F800000u | (magnitude << 13));
  // After the shift the exponent is too small by 127 - 15. The multiplication corrects it, also for subnormals.
  float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | sign);
}

/// Rounds to nearest even; overflow above 65504 gives infinity, values below 2^-14 become subnormal. A NaN becomes
/// quiet.
inline uint16_t floatToF16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t sign = (bits >> 16) & 0x8000u;
  uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u)
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  if (magnitude >= 0x477FF000u) // 65520 and above round to infinity
    return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x38800000u) { // below 2^-14: adding 0.5 aligns the unit to 2^-24 and rounds in hardware
    float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3F000000u));
  }
  uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

} // namespace espalier::rt
