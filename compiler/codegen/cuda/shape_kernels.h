// Row, flat and column kernels for GPUs: the loop nests around the evaluator.
#pragma once

#include "compiler/codegen/cuda/cuda_lanes.h"
#include "compiler/codegen/cuda/policy.h"
#include "compiler/codegen/evaluator.h"

namespace espalier::codegen::cuda {

/// The inputs of the builders.
struct ShapeBuilder {
  const KernelShape &shape;
  const Policy &policy;
  KernelFunction &function;
  CudaLanes &lanes;
  Evaluator &evaluator;
};

/// Distributes the columns of a row over threads: the whole block, or a part of a warp with several rows per block.
void buildRowKernel(const ShapeBuilder &builder);
/// Distributes the elements over threads.
void buildFlatKernel(const ShapeBuilder &builder);
/// Distributes the rows of a block over its warps, each with one warp's width of columns, and sums the warps in order.
void buildColumnKernel(const ShapeBuilder &builder);

/// Expands math.exp, log, tanh, erf and sqrt and divisions on f32 to approximate instructions and short polynomials.
void expandMath(mlir::Operation *root);

} // namespace espalier::codegen::cuda
