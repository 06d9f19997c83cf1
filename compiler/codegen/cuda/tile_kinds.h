// The two kinds of tiles that Tiles::make chooses from.
#pragma once

#include "compiler/codegen/cuda/tiles.h"

namespace espalier::codegen::cuda {

std::unique_ptr<Tiles> makeMmaTiles(KernelFunction &f, const TileSizes &sizes);
/// `scratch`: byte offset of sizes.scratchBytes() in shared memory.
std::unique_ptr<Tiles> makeFmaTiles(KernelFunction &f, const TileSizes &sizes, Expr scratch);

} // namespace espalier::codegen::cuda
