// Kernels for CPUs: llvm.func with scf, arith and math inside, for vectors of a given width.
#pragma once

#include "compiler/codegen/evaluator.h"

namespace espalier::codegen {

/// What decides the code besides the kernel: 4, 8 or 16 lanes, and whether the level converts f16 itself.
struct VectorTarget {
  std::string level; ///< x86-64, x86-64-v3, x86-64-v4
  int lanes = 4;
  bool hasHalf = false;
};

/// Lanes of vector registers. Conversions of bf16 are done on the bits, because targets without the instruction would
/// call a library.
class CpuLanes : public Lanes {
public:
  CpuLanes(mlir::ImplicitLocOpBuilder &builder, const VectorTarget &target) : Lanes(builder), target(target) {}

  mlir::Value load(mlir::Value base, mlir::Value index, mlir::Type element, int width) override;
  void store(mlir::Value value, mlir::Value base, mlir::Value index, mlir::Type element) override;
  mlir::Value round(mlir::Value value, mlir::Type element) override;

  const VectorTarget &target;

private:
  mlir::Value bitsOf(mlir::Value value, mlir::Type element);
  mlir::Value fromBits(mlir::Value bits, mlir::Type element);
  mlir::Value halfBits(mlir::Value value);
  mlir::Value fromHalfBits(mlir::Value bits);
  mlir::Value address(mlir::Value base, mlir::Value index, mlir::Type element);
};

/// Adds an llvm.func named `symbol` for the kernel at the builder's place.
void buildKernel(mlir::ImplicitLocOpBuilder &builder, llvm::StringRef symbol, const KernelShape &shape,
                 const VectorTarget &target);

// One builder per shape: the body of the function, over [begin, end).
void buildRowKernel(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, mlir::Value begin,
                    mlir::Value end);
void buildFlatKernel(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, mlir::Value begin,
                     mlir::Value end);
void buildColumnKernel(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, mlir::Value begin,
                       mlir::Value end);
/// Of column kernels that do the work of rows, too.
void buildSummingRowKernel(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, mlir::Value begin,
                           mlir::Value end);

/// First and last + 1 row of a block of a column kernel.
std::pair<mlir::Value, mlir::Value> rowsOfBlock(Evaluator &evaluator, CpuLanes &lanes, mlir::Value block);

/// Replaces math.exp, log, tanh and erf on f32 by polynomials: no call of a library remains.
void expandMath(mlir::Operation *root);

} // namespace espalier::codegen
