// Declares the exec dialect.
#pragma once

#include "dialects/dist/dialect.h"
#include "dialects/interfaces.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace espalier::rt {
struct OperandSignature; // format/functions.h
struct OptimizerRow;     // format/optimizers.h
} // namespace espalier::rt

namespace espalier::exec {

/// A 64-bit float as a parameter of an attribute.
struct F64 {
  double value = 0;
  F64(double value) : value(value) {}
  operator double() const { return value; }
};
inline llvm::hash_code hash_value(F64 number) { return llvm::hash_value(llvm::bit_cast<uint64_t>(number.value)); }
/// Parses a float literal.
mlir::FailureOr<F64> parseF64(mlir::AsmParser &parser);

/// The row of an optimizer, which attributes name.
using OptimizerType = const rt::OptimizerRow *;
/// Parse and print the name of an optimizer as a string. An unknown name is an error.
mlir::FailureOr<OptimizerType> parseOptimizer(mlir::AsmParser &parser);
void printOptimizer(mlir::AsmPrinter &printer, OptimizerType type);

} // namespace espalier::exec

#include "dialects/exec/dialect.h.inc"

#include "dialects/exec/enums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/exec/attrs.h.inc"

#define GET_OP_CLASSES
#include "dialects/exec/ops.h.inc"

namespace espalier::exec {

/// Alignment, in elements, of a parameter within its bucket. Shard sizes are multiples of it.
inline constexpr int64_t bucketAlignment = 128;

/// Returns the segment of a kind, or null.
SegmentOp findSegment(mlir::ModuleOp module, llvm::StringRef kind);

/// Returns the bit of a mesh axis in the plan's axis sets; 0 for an unknown name.
uint32_t axisBit(llvm::StringRef axis);
/// Returns the bits of several axes; null means no axes.
uint32_t axisBits(mlir::ArrayAttr axes);
uint32_t axisBits(llvm::ArrayRef<mlir::StringAttr> axes);
/// Returns the names of the axes in a set, in bit order.
mlir::ArrayAttr axisNames(mlir::MLIRContext *context, uint32_t bits);

/// Returns the plan's data type of an element type, or nothing if the plan has none.
std::optional<DataType> dataType(mlir::Type element);

/// Calls `visit(buffer, isWritten)` for every buffer of an instruction (launch, call or start), in order.
void visitBuffers(mlir::Operation *instruction, llvm::function_ref<void(BufferAttr, bool)> visit);

/// Return whether the module's step is a generation, prefill and decode, or a training step with a backward pass and an
/// optimizer. An evaluation is neither.
bool generates(mlir::ModuleOp module);
bool trains(mlir::ModuleOp module);

} // namespace espalier::exec
