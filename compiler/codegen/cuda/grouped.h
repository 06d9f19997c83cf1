// The tiles of products of rows with the matrices of their experts.
#pragma once

#include "compiler/codegen/cuda/tiles.h"

namespace espalier::codegen::cuda {

constexpr int64_t groupedSide = 64; ///< rows, columns and depth of a tile

/// Returns the tiles of a product of two element types. Different types are multiplied in f32.
TileSizes groupedTiles(mlir::Type first, mlir::Type second);
/// Returns the shared memory of a block: a tile of each operand, and the owners of a tile's rows.
int64_t groupedSharedBytes(const TileSizes &sizes);

} // namespace espalier::codegen::cuda
