// Declares the exec dialect.
#pragma once

#include "dialects/interfaces.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace espalier::rt {
struct OperandSignature; // format/functions.h
}

#include "dialects/exec/dialect.h.inc"

#include "dialects/exec/enums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/exec/attrs.h.inc"

#define GET_OP_CLASSES
#include "dialects/exec/ops.h.inc"

namespace espalier::exec {

/// Returns the bit of a mesh axis in the plan's axis sets; 0 for an unknown name.
uint32_t axisBit(llvm::StringRef axis);
/// Returns the bits of several axes; null means no axes.
uint32_t axisBits(mlir::ArrayAttr axes);
/// Returns the names of the axes in a set, in bit order.
mlir::ArrayAttr axisNames(mlir::MLIRContext *context, uint32_t bits);

/// Returns the plan's data type of an element type, or nothing if the plan has none.
std::optional<DataType> dataType(mlir::Type element);

/// Calls `visit(buffer, isWritten)` for every buffer of an instruction (launch, call or start), in order.
void visitBuffers(mlir::Operation *instruction, llvm::function_ref<void(BufferAttr, bool)> visit);

/// Returns whether `module` is compiled for GPUs: its attribute `exec.target` is "cuda".
bool isCuda(mlir::ModuleOp module);

} // namespace espalier::exec
