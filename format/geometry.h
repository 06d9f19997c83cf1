// The code also states the grid for which a GPU kernel was compiled: the text begins with one line per kernel, in the
// plan's order. A plan whose Geometry states another grid is rejected.
#pragma once

#include <cstdint>
#include <string>

namespace espalier::rt {

/// The number of elements that a square_blocks block adds is a multiple of this, which allows vector loads.
constexpr int64_t squareBlockMultiple = 4;

/// Returns the line of one kernel, without newline.
inline std::string geometryLine(const std::string &symbol, int64_t threads, int64_t extentPerBlock,
                                int64_t columnsPerBlock, int64_t sharedBytes) {
  return "// " + symbol + ": a block of " + std::to_string(threads) + " threads does " +
         std::to_string(extentPerBlock) + " iterations, " + std::to_string(columnsPerBlock) + " columns, with " +
         std::to_string(sharedBytes) + " bytes shared";
}

} // namespace espalier::rt
