// Machine code against meaning: every kernel of a plan run on small random tensors and compared with the interpreter.
#pragma once

#include "compiler/kernel_runner.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier::codegen {

/// Runs every exec.kernel of `module` that has a body, as it was emitted into the objects of `plan`, on dimensions made
/// small: at each level that this processor has or, where the plan is for GPUs, on the device that `open` gives.
/// Compares what it stores with compiler/interpret. Fails with a diagnostic on the kernel that names it, the level and
/// the element where they differ by more than the roundings can explain, or where something is written past the end of
/// an output.
mlir::LogicalResult checkKernels(mlir::ModuleOp module, const rt::pb::Plan &plan, const OpenKernelRunner &open = {});

} // namespace espalier::codegen
