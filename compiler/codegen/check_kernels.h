// Checks machine code against op semantics: runs every kernel of a plan on small random tensors and compares the
// results with the interpreter.
#pragma once

#include "compiler/kernel_runner.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier::codegen {

/// Runs every exec.kernel of `module` that has a body, as emitted into the objects of `plan`, with reduced dimensions.
/// Runs it at each instruction set level that this processor supports or, for a GPU plan, on the device that `open`
/// returns. Compares the stored results with compiler/interpret. Reports an error on a kernel if its results differ by
/// more than rounding explains, or if it writes past the end of an output. The error names the kernel, the level and
/// the element.
mlir::LogicalResult checkKernels(mlir::ModuleOp module, const rt::pb::Plan &plan, const OpenKernelRunner &open = {});

} // namespace espalier::codegen
