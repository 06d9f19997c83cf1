// A GPU kernel under construction: its function with parameters, and hardware indices as values. Pointers are in
// address space 1 (global) or 3 (shared).
#pragma once

#include "compiler/codegen/cuda/arithmetic.h"

#include "dialects/exec/dialect.h"
#include "format/functions.h"

namespace espalier::codegen::cuda {

/// The operation of a reduction.
enum class Reduction { Add, Max };

/// Builds one kernel.
class KernelFunction : public Arithmetic {
public:
  /// Begins a kernel at the builder's insertion point (a module body); format/abi.h defines its parameters. Pointers
  /// are not noalias, because an output may alias an input, which LLVM would otherwise load by ld.global.nc. `row`
  /// names the parameters of a kernel of functions.def; null for generated kernels.
  KernelFunction(mlir::ImplicitLocOpBuilder &builder, llvm::StringRef symbol, unsigned buffers, unsigned scalars,
                 exec::GeometryAttr geometry, const rt::KernelSignature *row = nullptr);
  /// Ends the function.
  void finish();

  /// Returns the pointer of a buffer of the launch.
  mlir::Value buffer(unsigned index);
  /// Returns a scalar of the launch as i64.
  mlir::Value scalar(unsigned index);
  /// Return the buffer of an operand and a scalar, as the kernel's row in functions.def names them. `occurrence`
  /// selects one of the buffers of an operand with `each`.
  mlir::Value buffer(llvm::StringRef operand, size_t occurrence = 0);
  mlir::Value scalar(llvm::StringRef name);
  mlir::Value extent();
  /// Returns the dynamic shared memory of the block, 16-byte aligned, of geometry.shared_bytes bytes.
  mlir::Value shared();

  // Indices as i32.
  mlir::Value threadIndex();
  mlir::Value laneIndex(); ///< within the warp
  mlir::Value warpIndex(); ///< within the block
  mlir::Value blockX();
  mlir::Value blockY();
  /// The block's range of the extent, as i64.
  mlir::Value blockBegin();
  mlir::Value blockEnd();

  /// Synchronizes all threads of the block; must not be in divergent code.
  void barrier();
  /// Return the value, f32 or i32, of lane `lane ^ mask`, or of `lane`. All lanes of the warp take part.
  mlir::Value shuffleXor(mlir::Value x, int mask);
  mlir::Value shuffleFrom(mlir::Value x, mlir::Value lane);
  /// Returns a bit mask of the lanes for which `condition` holds. All lanes take part.
  mlir::Value ballot(mlir::Value condition);
  mlir::Value countOnes(mlir::Value bits);
  /// Reduces over groups of `lanes` neighbours (a power of two up to 32) in a fixed order. Every lane gets the result.
  mlir::Value reduceWarp(mlir::Value x, Reduction reduction, int lanes = 32);
  /// Reduces over each group of `warps` neighbouring warps of the block, whose threads all take part. Every thread gets
  /// the result. `scratch` has 4 bytes of shared memory per warp of the block; it may be reused after another barrier.
  mlir::Value reduceWarps(mlir::Value x, Reduction reduction, int warps, mlir::Value scratch);

  // Memory accesses. `index` counts elements and is i32 or i64.
  mlir::Value address(mlir::Value base, mlir::Value index, mlir::Type element);
  /// Loads an f32, or an i32 for integers.
  mlir::Value load(mlir::Value base, mlir::Value index, mlir::Type element);
  void store(mlir::Value x, mlir::Value base, mlir::Value index, mlir::Type element);
  /// Load or store 1, 2 or 4 words as i32 or a vector of i32, aligned to their size.
  mlir::Value loadWords(mlir::Value address, int words);
  void storeWords(mlir::Value words, mlir::Value address);

  const exec::GeometryAttr geometry;

private:
  /// Returns `known`, built once at the beginning of the function.
  mlir::Value atBegin(mlir::Value &known, llvm::function_ref<mlir::Value()> build);

  mlir::LLVM::LLVMFuncOp function;
  unsigned buffers, scalars;
  const rt::KernelSignature *row;
  mlir::Value thread, lane, warp, x, y, begin, end, sharedBase;
  mlir::OpBuilder::InsertPoint outside;
};

} // namespace espalier::codegen::cuda
