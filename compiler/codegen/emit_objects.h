// The last step of code generation: machine code of all kernels.
#pragma once

#include "format/plan.pb.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier::codegen {

/// Fills `objects` of `plan` with the code of the module's kernels: one object per instruction set level for CPUs, or
/// PTX text for GPUs. With `onlyLevel`, each CPU object holds the code of this level. Adds nothing if the module has no
/// kernels. Reports errors on the module's ops.
mlir::LogicalResult emitObjects(mlir::ModuleOp module, rt::pb::Plan &plan, llvm::StringRef onlyLevel = "");

} // namespace espalier::codegen
