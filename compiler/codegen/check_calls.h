// Checks GPU kernels that implement library calls against the runtime's CPU kernels.
#pragma once

#include "compiler/kernel_runner.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier::codegen {

/// Runs small calls whose launches use the module's kernels without a body, and compares all outputs with the CPU
/// kernels. Reports an error on a kernel if its results differ by more than rounding explains, if it writes past the
/// end of a buffer, or if no call launches it.
mlir::LogicalResult checkCalls(mlir::ModuleOp module, const rt::pb::Plan &plan, KernelRunner &runner);

} // namespace espalier::codegen
