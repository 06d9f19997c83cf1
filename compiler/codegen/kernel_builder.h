// Builds kernels as llvm.func with scf, arith and math inside, for vectors of a given width. A builder makes a loop
// nest and asks the evaluator for values; the evaluator computes a value of the body for one column or `width`
// neighbouring ones, from loads.
#pragma once

#include "compiler/codegen/kernel_shape.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace espalier::codegen {

/// What decides the code besides the kernel: 4, 8 or 16 lanes, and whether the level converts f16 itself.
struct VectorTarget {
  std::string level; ///< x86-64, x86-64-v3, x86-64-v4
  int lanes = 4;
  bool hasHalf = false;
};

/// Arithmetic on scalars (width 1) or vectors, and memory access with conversion from and to f32.
class Lanes {
public:
  Lanes(mlir::ImplicitLocOpBuilder &builder, const VectorTarget &target) : b(builder), target(target) {}

  mlir::Type type(mlir::Type element, int width) const;
  mlir::Value integer(int64_t value, int width = 1, unsigned bits = 64);
  mlir::Value number(double value, int width = 1);
  mlir::Value splat(mlir::Value scalar, int width);
  /// first, first + 1, ... as i64.
  mlir::Value iota(mlir::Value first, int width);
  /// `width` elements of storage type `element` from base[index]; f32, or i32 for integers.
  mlir::Value load(mlir::Value base, mlir::Value index, mlir::Type element, int width);
  void store(mlir::Value value, mlir::Value base, mlir::Value index, mlir::Type element);
  /// The f32 that a store to `element` and a load give back.
  mlir::Value round(mlir::Value value, mlir::Type element);
  mlir::Value asFloat(mlir::Value value);

  mlir::ImplicitLocOpBuilder &b;
  const VectorTarget &target;

private:
  mlir::Value bitsOf(mlir::Value value, mlir::Type element);
  mlir::Value fromBits(mlir::Value bits, mlir::Type element);
  mlir::Value halfBits(mlir::Value value);
  mlir::Value fromHalfBits(mlir::Value bits);
  mlir::Value address(mlir::Value base, mlir::Value index, mlir::Type element);
};

/// Where code is being emitted: which columns, how many at once, in which pass.
struct Cursor {
  mlir::Value column;
  int width = 1;
  int pass = 0;
};

/// Values of one kernel body at the current row.
class Evaluator {
public:
  Evaluator(const KernelShape &shape, Lanes &lanes, mlir::LLVM::LLVMFuncOp function);

  /// Forgets what belongs to the previous row.
  void setRow(mlir::Value row);
  /// Computes all values that exist once; called before the row loop.
  void emitScalars();
  /// A value that exists once or once per row, in f32 (i32 for integer operands).
  mlir::Value once(mlir::Value value);
  void setOnce(mlir::Value value, mlir::Value computed) { rowValues[value] = computed; }
  /// Starts a new set of columns: forgets full values.
  void setCursor(Cursor cursor);
  /// `value` at the cursor, of the cursor's width.
  mlir::Value at(mlir::Value value);
  /// Stores output `index` at the cursor (full) or at the row.
  void storeOutput(unsigned index, mlir::Value value);
  mlir::Value scalar(unsigned index);
  mlir::Value outputBase(unsigned index) { return outputs[index]; }
  /// Later passes read these values from the output that an earlier pass stored.
  void setStored(mlir::Value value, unsigned output) { stored[value] = output; }
  mlir::Value row() const { return currentRow; }

private:
  mlir::Value compute(mlir::Operation *op, llvm::ArrayRef<mlir::Value> operands, int width);
  mlir::Value loadOperand(unsigned index, bool isFull);
  mlir::Value rowOffset(llvm::ArrayRef<Term> terms, unsigned firstScalar);
  mlir::Value accumulate(mlir::Operation *op, llvm::ArrayRef<mlir::Value> operands, int width);
  mlir::Value dropout(mlir::Operation *op, mlir::Value x, int width);
  mlir::Value maskTail(mlir::Operation *op, mlir::Value x, int width);
  mlir::Value pickGrad(mlir::Operation *op, int width);
  mlir::Value pick(mlir::Operation *op);

  const KernelShape &shape;
  Lanes &lanes;
  mlir::LLVM::LLVMFuncOp function;
  llvm::SmallVector<mlir::Value> operands, slots, outputs, scalars;
  llvm::DenseMap<mlir::Value, mlir::Value> scalarValues, rowValues, fullValues;
  llvm::DenseMap<mlir::Value, unsigned> stored;
  mlir::Value currentRow;
  Cursor cursor;
};

/// Adds an llvm.func named `symbol` for the kernel at the builder's place.
void buildKernel(mlir::ImplicitLocOpBuilder &builder, llvm::StringRef symbol, const KernelShape &shape,
                 const VectorTarget &target);

// One builder per shape: the body of the function, over [begin, end).
void buildRowKernel(Evaluator &evaluator, const KernelShape &shape, Lanes &lanes, mlir::Value begin, mlir::Value end);
void buildFlatKernel(Evaluator &evaluator, const KernelShape &shape, Lanes &lanes, mlir::Value begin, mlir::Value end);
void buildColumnKernel(Evaluator &evaluator, const KernelShape &shape, Lanes &lanes, mlir::Value begin,
                       mlir::Value end);

/// Replaces math.exp, log, tanh and erf on f32 by polynomials: no call of a library remains.
void expandMath(mlir::Operation *root);

} // namespace espalier::codegen
