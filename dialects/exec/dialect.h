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

#define GET_ATTRDEF_CLASSES
#include "dialects/exec/attrs.h.inc"

#define GET_OP_CLASSES
#include "dialects/exec/ops.h.inc"

namespace espalier::exec {

/// Number of `region` in plan.proto's Region, or -1 for `virtual` and unknown names.
int regionNumber(llvm::StringRef region);

/// Number of `function` in plan.proto's LibraryCall.Function, or -1.
int functionNumber(llvm::StringRef function);

/// Every buffer of an instruction (launch, call or start) in order; calls `visit(buffer, isWritten)`.
void visitBuffers(mlir::Operation *instruction, llvm::function_ref<void(BufferAttr, bool)> visit);

/// Whether `module` is compiled for GPUs: its attribute `exec.target` is "cuda".
bool isCuda(mlir::ModuleOp module);

} // namespace espalier::exec
