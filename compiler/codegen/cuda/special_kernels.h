// Kernels that are not made from a fused body: what the runtime's own kernels do on CPUs.
#pragma once

#include "compiler/codegen/cuda/kernel_function.h"

namespace espalier::codegen::cuda {

/// Emits the body of `function` for `kernel`, whose parameters say what it does.
using BuildKernel = mlir::LogicalResult (*)(KernelFunction &function, exec::KernelOp kernel);

/// The builder of kernels of a shape; null when there is none.
BuildKernel specialKernel(llvm::StringRef shape);

} // namespace espalier::codegen::cuda
