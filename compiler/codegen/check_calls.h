// Kernels for GPUs that stand for library calls, against the runtime's own kernels for CPUs.
#pragma once

#include "compiler/kernel_runner.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier::codegen {

/// Makes small calls that are launches of the module's kernels without a body, runs both, and compares all that they
/// leave. Fails with a diagnostic on the kernel where they differ by more than roundings explain, or where something is
/// written past the end of a buffer, and on a kernel that no call here launches.
mlir::LogicalResult checkCalls(mlir::ModuleOp module, const rt::pb::Plan &plan, KernelRunner &runner);

} // namespace espalier::codegen
