// Values of a fused body as code: a builder of a kernel makes the loop nest and asks the evaluator for values of the
// body at one column or `width` neighbouring ones. What an op means is said here once, for every target.
#pragma once

#include "compiler/codegen/kernel_shape.h"
#include "compiler/codegen/lanes.h"

namespace espalier::codegen {

/// What a launch hands to a kernel, in the order of KernelShape: base pointers and i64. An accumulator has the pointer
/// of its result.
struct KernelArguments {
  llvm::SmallVector<mlir::Value> operands, slots, outputs, scalars;

  /// `buffer(i)` and `scalar(i)` give the i-th of a launch.
  static KernelArguments read(const KernelShape &shape, llvm::function_ref<mlir::Value(unsigned)> buffer,
                              llvm::function_ref<mlir::Value(unsigned)> scalar);
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
  Evaluator(const KernelShape &shape, Lanes &lanes, KernelArguments arguments)
      : shape(shape), lanes(lanes), arguments(std::move(arguments)) {}

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
  /// Makes `computed` the value at the cursor, which an earlier pass held in registers.
  void setAt(mlir::Value value, mlir::Value computed) { fullValues[value] = computed; }
  /// `value` at the cursor where it has been asked for already, else null.
  mlir::Value knownAt(mlir::Value value) const { return fullValues.lookup(value); }
  /// Stores output `index` at the cursor (full) or at the row.
  void storeOutput(unsigned index, mlir::Value value);
  /// At the cursor, what the row adds to output `index`, a sum over the rows; in f32.
  mlir::Value termOf(unsigned index);
  mlir::Value scalar(unsigned index) { return arguments.scalars[index]; }
  mlir::Value outputBase(unsigned index) { return arguments.outputs[index]; }
  /// Later passes read these values from the output that an earlier pass stored.
  void setStored(mlir::Value value, unsigned output) { stored[value] = output; }

private:
  mlir::Value compute(mlir::Operation *op, llvm::ArrayRef<mlir::Value> operands, int width);
  mlir::Value loadOperand(unsigned index, bool isFull);
  mlir::Value rowOffset(llvm::ArrayRef<Term> terms, unsigned firstScalar);
  /// row * columns + the cursor's column.
  mlir::Value densePosition();
  mlir::Value accumulate(mlir::Operation *op, llvm::ArrayRef<mlir::Value> operands, int width);
  mlir::Value dropout(mlir::Operation *op, mlir::Value x, int width);
  mlir::Value maskTail(mlir::Operation *op, mlir::Value x, int width);
  mlir::Value pickGrad(mlir::Operation *op, int width);
  mlir::Value pick(mlir::Operation *op);

  const KernelShape &shape;
  Lanes &lanes;
  KernelArguments arguments;
  llvm::DenseMap<mlir::Value, mlir::Value> scalarValues, rowValues, fullValues;
  llvm::DenseMap<mlir::Value, unsigned> stored;
  mlir::Value currentRow;
  mlir::Value step; ///< where a body draws random bits
  Cursor cursor;
};

/// What one pass over the columns of a row does: the reductions whose operands exist in it, full outputs, and those
/// that are sums over the rows.
struct PassWork {
  llvm::SmallVector<mlir::Operation *> reductions;
  llvm::SmallVector<unsigned> outputs, sums;
  bool isEmpty() const { return reductions.empty() && outputs.empty() && sums.empty(); }
};
PassWork workOf(const KernelShape &shape, int pass);

/// One step of a reduction, and what it begins with.
mlir::Value combine(Lanes &lanes, mlir::Operation *reduction, mlir::Value a, mlir::Value x);
mlir::Value neutral(Lanes &lanes, mlir::Operation *reduction, int width);
/// All lanes into one number, in a fixed tree order.
mlir::Value combineLanes(Lanes &lanes, mlir::Operation *reduction, mlir::Value vector);

/// Values of the row that exist once the reductions before `pass` are done.
void emitRowValues(Evaluator &evaluator, const KernelShape &shape, int pass);
/// Stores those of them (and of the values that exist once) that are outputs.
void storeRowValues(Evaluator &evaluator, const KernelShape &shape, int pass);

} // namespace espalier::codegen
