// What kernels of all targets go through in LLVM.
#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

namespace espalier::codegen {

/// The dialects of kernels and their translations.
void addDialects(mlir::DialectRegistry &registry);

/// All of them, loaded before threads share the context.
void prepareContext(mlir::MLIRContext &context);

/// vector, scf, arith, math and cf inside of llvm.func to the llvm dialect.
mlir::LogicalResult convertToLlvm(mlir::ModuleOp module);

/// The scalar pipeline; loops are vectorized and unrolled by construction already. Library functions are off: nothing
/// is there that could be called. With `scalarize`, what is left of vectors is memory access.
void optimize(llvm::Module &module, llvm::TargetMachine &machine, bool scalarize = false);

} // namespace espalier::codegen
