// The two implementations that Tiles::make() chooses from.
#pragma once

#include "compiler/codegen/cuda/tiles.h"

namespace espalier::codegen::cuda {

/// Tensor core tiles for 16-bit elements, and fma tiles for f32.
std::unique_ptr<Tiles> makeMmaTiles(KernelFunction &f, const TileSizes &sizes);
/// `scratch` is the byte offset of sizes.scratchBytes() bytes in shared memory.
std::unique_ptr<Tiles> makeFmaTiles(KernelFunction &f, const TileSizes &sizes, Expr scratch);

} // namespace espalier::codegen::cuda
