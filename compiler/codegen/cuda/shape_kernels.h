// Row, flat and column kernels for GPUs: the loop nests around the evaluator.
#pragma once

#include "compiler/codegen/cuda/cuda_lanes.h"
#include "compiler/codegen/cuda/policy.h"
#include "compiler/codegen/evaluator.h"

namespace espalier::codegen::cuda {

/// What a builder of a shape works with.
struct ShapeBuilder {
  const KernelShape &shape;
  const Policy &policy;
  KernelFunction &function;
  CudaLanes &lanes;
  Evaluator &evaluator;
};

/// Threads over the columns of a row: all of a block, or a part of a warp and then several rows per block.
void buildRowKernel(const ShapeBuilder &builder);
/// Threads over the elements.
void buildFlatKernel(const ShapeBuilder &builder);
/// A block's rows at the columns of one warp: its warps take the rows in turns and add up their sums in order.
void buildColumnKernel(const ShapeBuilder &builder);

/// Replaces math.exp, log, tanh, erf and sqrt and divisions on f32 by approximate instructions and short polynomials.
void expandMath(mlir::Operation *root);

} // namespace espalier::codegen::cuda
