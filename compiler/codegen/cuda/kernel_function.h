// A kernel for GPUs being built: its function with parameters, and what the hardware gives, as values. Pointers are
// of address space 1 (global) or 3 (shared).
#pragma once

#include "compiler/codegen/cuda/arithmetic.h"

#include "dialects/exec/dialect.h"

namespace espalier::codegen::cuda {

/// What a reduction does with two numbers.
enum class Reduction { Add, Max };

class KernelFunction : public Arithmetic {
public:
  /// Begins a kernel at the builder's place (the body of a module); see runtime/abi.h for its parameters. No pointer is
  /// noalias: an output may lie in the place of an input, and LLVM would read that by ld.global.nc.
  KernelFunction(mlir::ImplicitLocOpBuilder &builder, llvm::StringRef symbol, unsigned buffers, unsigned scalars,
                 exec::GeometryAttr geometry);
  /// Ends it.
  void finish();

  mlir::Value buffer(unsigned index);
  /// As i64.
  mlir::Value scalar(unsigned index);
  mlir::Value extent();
  /// Dynamic shared memory of the block, 16-byte aligned: geometry.shared_bytes.
  mlir::Value shared();

  // Indices as i32.
  mlir::Value threadIndex();
  mlir::Value laneIndex(); ///< within the warp
  mlir::Value warpIndex(); ///< within the block
  mlir::Value blockX();
  mlir::Value blockY();
  /// The block's iterations of the extent, as i64.
  mlir::Value blockBegin();
  mlir::Value blockEnd();

  /// Holds all threads of the block; never in divergent code.
  void barrier();
  /// The value that lane `lane ^ mask` (of `lane`) has, f32 or i32; all lanes of the warp take part.
  mlir::Value shuffleXor(mlir::Value x, int mask);
  mlir::Value shuffleFrom(mlir::Value x, mlir::Value lane);
  /// The lanes of the warp for which `condition` holds, as bits; all take part.
  mlir::Value ballot(mlir::Value condition);
  mlir::Value countOnes(mlir::Value bits);
  /// Over groups of `lanes` neighbours (a power of two up to 32), in a fixed order; each of them gets the result.
  mlir::Value reduceWarp(mlir::Value x, Reduction reduction, int lanes = 32);
  /// Over each `warps` neighbouring warps of the block, whose threads all take part; each gets the result. `scratch`: 4
  /// bytes of shared memory per warp of the block, free for others after a further barrier.
  mlir::Value reduceWarps(mlir::Value x, Reduction reduction, int warps, mlir::Value scratch);

  // Memory: `index` in elements, i32 or i64.
  mlir::Value address(mlir::Value base, mlir::Value index, mlir::Type element);
  /// f32, or i32 for integers.
  mlir::Value load(mlir::Value base, mlir::Value index, mlir::Type element);
  void store(mlir::Value x, mlir::Value base, mlir::Value index, mlir::Type element);
  /// 1, 2 or 4 words as i32 or a vector of them, aligned to their size.
  mlir::Value loadWords(mlir::Value address, int words);
  void storeWords(mlir::Value words, mlir::Value address);

  const exec::GeometryAttr geometry;

private:
  /// Emitted once, at the function's begin.
  mlir::Value atBegin(mlir::Value &known, llvm::function_ref<mlir::Value()> build);

  mlir::LLVM::LLVMFuncOp function;
  unsigned buffers, scalars;
  mlir::Value thread, lane, warp, x, y, begin, end, sharedBase;
  mlir::OpBuilder::InsertPoint outside;
};

} // namespace espalier::codegen::cuda
