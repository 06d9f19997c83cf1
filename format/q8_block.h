// Weights in 8 bits: GGUF's type q8_0.
#pragma once

#include <cstdint>

namespace espalier::rt {

/// 32 consecutive weights of one output along the depth of a product: weight i is f16(scale) * values[i]. The scale is
/// the largest magnitude / 127, and values are rounded half away from zero with the scale in f32, as ggml's
/// quantize_row_q8_0 does. Products decode a weight in f32 and sum in f32.
struct Q8Block {
  static constexpr int64_t weights = 32;
  static constexpr float largest = 127;

  uint16_t scale; ///< bits of an f16
  int8_t values[weights];
};
static_assert(sizeof(Q8Block) == 34);

} // namespace espalier::rt
