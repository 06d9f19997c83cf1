// The zigzag order of a sequence over n ranks: rank r holds chunks r and 2 n - 1 - r of 2 n chunks, so that all ranks
// have equally much causal attention.
#pragma once

#include <cstdint>

namespace espalier::rt {

/// Returns the chunk that rank `part` of `parts` holds first (half 0) or second (half 1).
constexpr int64_t zigzagChunk(int64_t part, int64_t half, int64_t parts) {
  return half == 0 ? part : 2 * parts - 1 - part;
}

/// Returns the rank that holds a chunk.
constexpr int64_t zigzagPart(int64_t chunk, int64_t parts) { return chunk < parts ? chunk : 2 * parts - 1 - chunk; }

/// The size `zigzag` of REARRANGE: which side has parts in zigzag order.
enum class Zigzag : int64_t { None = 0, From = 1, To = 2 };

} // namespace espalier::rt
