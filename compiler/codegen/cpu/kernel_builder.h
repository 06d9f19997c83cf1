// Builds kernels for CPUs: an llvm.func with scf, arith and math ops, for vectors of a given width.
#pragma once

#include "compiler/codegen/evaluator.h"

namespace espalier::codegen {

/// The target properties that affect a kernel's code: 4, 8 or 16 lanes, and whether the level has instructions that
/// convert f16.
struct VectorTarget {
  std::string level; ///< x86-64, x86-64-v3, x86-64-v4
  int lanes = 4;
  bool hasHalf = false;
};

/// Lanes of vector registers. bf16 conversions use integer arithmetic, because LLVM would call a library on targets
/// without the instruction.
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

/// Adds an llvm.func named `symbol` for the kernel at the builder's insertion point.
void buildKernel(mlir::ImplicitLocOpBuilder &builder, llvm::StringRef symbol, const KernelShape &shape,
                 const VectorTarget &target);

// One builder per kernel shape. Each emits the body of the function over [begin, end).
void buildRowKernel(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, mlir::Value begin,
                    mlir::Value end);
void buildFlatKernel(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, mlir::Value begin,
                     mlir::Value end);
void buildColumnKernel(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, mlir::Value begin,
                       mlir::Value end);
/// Builds column kernels that also do the work of a row kernel.
void buildSummingRowKernel(Evaluator &evaluator, const KernelShape &shape, CpuLanes &lanes, mlir::Value begin,
                           mlir::Value end);

/// Returns the first row of a column kernel's block and the row after its last one.
std::pair<mlir::Value, mlir::Value> rowsOfBlock(Evaluator &evaluator, CpuLanes &lanes, mlir::Value block);

/// Replaces math.exp, log, tanh and erf on f32 by polynomials, so that no library call remains.
void expandMath(mlir::Operation *root);

} // namespace espalier::codegen
