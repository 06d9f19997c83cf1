// The grid that a GPU kernel's code was written for is said beside the code too: its text begins with a line for each
// kernel, in the plan's order. A plan whose Geometry says another grid is refused.
#pragma once

#include <cstdint>
#include <string>

namespace espalier::rt {

/// Elements that a block of square_blocks adds up are a multiple of this, so that it can read as many at once.
constexpr int64_t squareBlockMultiple = 4;

/// The line of one kernel, without its end.
inline std::string geometryLine(const std::string &symbol, int64_t threads, int64_t extentPerBlock,
                                int64_t columnsPerBlock, int64_t sharedBytes) {
  return "// " + symbol + ": a block of " + std::to_string(threads) + " threads does " +
         std::to_string(extentPerBlock) + " iterations, " + std::to_string(columnsPerBlock) + " columns, with " +
         std::to_string(sharedBytes) + " bytes shared";
}

} // namespace espalier::rt
