// The exec dialect's classes.
#pragma once

#include "dialects/interfaces.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace espalier::rt {
struct OperandSignature; // runtime/functions.h
}

#include "dialects/exec/dialect.h.inc"

#include "dialects/exec/enums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/exec/attrs.h.inc"

#define GET_OP_CLASSES
#include "dialects/exec/ops.h.inc"

namespace espalier::exec {

/// The bit of a mesh axis in the plan's sets of axes; 0 for a name that is none.
uint32_t axisBit(llvm::StringRef axis);
/// The same for several; null is none.
uint32_t axisBits(mlir::ArrayAttr axes);
/// The names of the axes in a set, in the order of their bits.
mlir::ArrayAttr axisNames(mlir::MLIRContext *context, uint32_t bits);

/// The number that a plan has for the type of an element; none for one that it does not know.
std::optional<DataType> dataType(mlir::Type element);

/// Every buffer of an instruction (launch, call or start) in order; calls `visit(buffer, isWritten)`.
void visitBuffers(mlir::Operation *instruction, llvm::function_ref<void(BufferAttr, bool)> visit);

/// Whether `module` is compiled for GPUs: its attribute `exec.target` is "cuda".
bool isCuda(mlir::ModuleOp module);

} // namespace espalier::exec
