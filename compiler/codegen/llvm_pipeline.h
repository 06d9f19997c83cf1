// The LLVM pipeline that the kernels of all targets use.
#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

namespace espalier::codegen {

/// Registers the dialects of kernels and their translations to LLVM IR.
void addDialects(mlir::DialectRegistry &registry);

/// Loads all of these dialects. Call it before several threads use the context.
void prepareContext(mlir::MLIRContext &context);

/// Lowers vector, scf, arith, math and cf inside llvm.func to the llvm dialect.
mlir::LogicalResult convertToLlvm(mlir::ModuleOp module);

/// Runs LLVM's O2 pipeline without vectorization and unrolling, because kernels are built with both. Library functions
/// are disabled, because a kernel cannot call any. With `scalarize`, only memory accesses remain vectors.
void optimize(llvm::Module &module, llvm::TargetMachine &machine, bool scalarize = false);

} // namespace espalier::codegen
