// The exec dialect's classes.
#pragma once

#include "dialects/interfaces.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/exec/dialect.h.inc"

#include "dialects/exec/enums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/exec/attrs.h.inc"

#define GET_OP_CLASSES
#include "dialects/exec/ops.h.inc"

namespace espalier::exec {

/// The bit of a mesh axis in the plan's sets of axes; 0 for a name that is none.
uint32_t axisBit(llvm::StringRef axis);

/// Every buffer of an instruction (launch, call or start) in order; calls `visit(buffer, isWritten)`.
void visitBuffers(mlir::Operation *instruction, llvm::function_ref<void(BufferAttr, bool)> visit);

/// Whether `module` is compiled for GPUs: its attribute `exec.target` is "cuda".
bool isCuda(mlir::ModuleOp module);

} // namespace espalier::exec
