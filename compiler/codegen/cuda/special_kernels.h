// Kernels without a fused body: the CUDA versions of the runtime's CPU kernels.
#pragma once

#include "compiler/codegen/cuda/expression.h"

namespace espalier::codegen::cuda {

/// The kernels of functions.def.
enum class SpecialKernel {
#define KERNEL(shape, function, signature) shape,
#include "format/functions.def"
};

/// Emits the body of `f` for `kernel`, which is specialized by its parameters. Each kernel of functions.def has a
/// specialization in a file of this folder. It reads buffers and scalars by the names of the row.
template <SpecialKernel shape> mlir::LogicalResult build(KernelFunction &f, exec::KernelOp kernel);
#define KERNEL(shape, function, signature)                                                                             \
  template <> mlir::LogicalResult build<SpecialKernel::shape>(KernelFunction & f, exec::KernelOp kernel);
#include "format/functions.def"

using BuildKernel = mlir::LogicalResult (*)(KernelFunction &f, exec::KernelOp kernel);

/// Returns the builder of kernels of a shape; null if there is none.
BuildKernel specialKernel(llvm::StringRef shape);

/// How a kernel combines its result with the destination. The parameter `accumulate` adds unless a scalar is 1;
/// `always_adds` always adds.
enum class Destination { Overwrite, AddUnlessFirst, Add };
Destination destinationOf(exec::KernelOp kernel);

/// Return a parameter of the kernel, which must exist, or `otherwise` if it does not.
mlir::Type typeParameter(exec::KernelOp kernel, llvm::StringRef name);
int64_t integerParameter(exec::KernelOp kernel, llvm::StringRef name);
int64_t integerParameter(exec::KernelOp kernel, llvm::StringRef name, int64_t otherwise);
double realParameter(exec::KernelOp kernel, llvm::StringRef name);
double realParameter(exec::KernelOp kernel, llvm::StringRef name, double otherwise);

// Constants shared by launches and kernels.
constexpr int64_t rowsPerOrderBlock = 64; ///< rows of the table per block of order_tokens
constexpr int64_t tokensPerSegment = 32;
constexpr int64_t orderSharedBytes = 4 * (rowsPerOrderBlock * 9 + 8);
constexpr int64_t columnsPerPartsBlock = 32;
constexpr int64_t cacheWarps = 4; ///< warps per query in attend_cache
// The most rows of few_rows, the most sums of a thread, and the warps of a block.
constexpr int64_t mostFewRows = 16, mostFewSums = 64, fewRowsWarps = 16;

} // namespace espalier::codegen::cuda
