// Generates code for the values of a fused body. A kernel builder makes the loop nest and asks the evaluator for values
// at one column or at `width` adjacent columns. The lowering of each op is defined here once, for every target.
#pragma once

#include "compiler/codegen/kernel_shape.h"
#include "compiler/codegen/lanes.h"

namespace espalier::codegen {

/// The arguments of a launch in the order of KernelShape: base pointers and i64 scalars. An accumulator uses the
/// pointer of its result.
struct KernelArguments {
  llvm::SmallVector<mlir::Value> operands, slots, outputs, scalars;

  /// Reads the arguments. `buffer(i)` and `scalar(i)` return the launch's i-th buffer and scalar.
  static KernelArguments read(const KernelShape &shape, llvm::function_ref<mlir::Value(unsigned)> buffer,
                              llvm::function_ref<mlir::Value(unsigned)> scalar);
};

/// The position at which code is emitted: first column, number of columns, and pass.
struct Cursor {
  mlir::Value column;
  int width = 1;
  int pass = 0;
};

/// Generates the values of one kernel body at the current row.
class Evaluator {
public:
  Evaluator(const KernelShape &shape, Lanes &lanes, KernelArguments arguments)
      : shape(shape), lanes(lanes), arguments(std::move(arguments)) {}

  /// Sets the row and discards the values of the previous row.
  void setRow(mlir::Value row);
  /// Emits all values that exist once. Must be called before the row loop.
  void emitScalars();
  /// Returns a value that exists once or once per row, as f32 (i32 for integer operands).
  mlir::Value once(mlir::Value value);
  void setOnce(mlir::Value value, mlir::Value computed) { rowValues[value] = computed; }
  /// Moves to a new set of columns and discards full values.
  void setCursor(Cursor cursor);
  /// Returns `value` at the cursor, with the cursor's width.
  mlir::Value at(mlir::Value value);
  /// Sets `value` at the cursor to `computed`, which an earlier pass kept in registers.
  void setAt(mlir::Value value, mlir::Value computed) { fullValues[value] = computed; }
  /// Returns `value` at the cursor if it has already been computed, else null.
  mlir::Value knownAt(mlir::Value value) const { return fullValues.lookup(value); }
  /// Stores output `index` at the cursor if it is a full value, else at the row.
  void storeOutput(unsigned index, mlir::Value value);
  /// Returns, at the cursor and in f32, the row's contribution to output `index`, which is a sum over rows.
  mlir::Value termOf(unsigned index);
  mlir::Value scalar(unsigned index) { return arguments.scalars[index]; }
  mlir::Value outputBase(unsigned index) { return arguments.outputs[index]; }
  /// Makes later passes read `value` from `output`, which an earlier pass stored.
  void setStored(mlir::Value value, unsigned output) { stored[value] = output; }

private:
  mlir::Value compute(mlir::Operation *op, llvm::ArrayRef<mlir::Value> operands, int width);
  mlir::Value loadOperand(unsigned index, bool isFull);
  mlir::Value rowOffset(llvm::ArrayRef<Term> terms, unsigned firstScalar);
  /// Returns the elements by which the second chunk of a dropout in zigzag order is farther away, or 0.
  mlir::Value zigzagOffset(const DropoutScalars::Zigzag &zigzag);
  /// Returns row * columns + the cursor's column.
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
  mlir::Value step; ///< the step number; set if the body uses random bits
  Cursor cursor;
};

/// The work of one pass over the columns of a row: the reductions whose operands exist in this pass, the full outputs,
/// and the outputs that are sums over rows.
struct PassWork {
  llvm::SmallVector<mlir::Operation *> reductions;
  llvm::SmallVector<unsigned> outputs, sums;
  bool isEmpty() const { return reductions.empty() && outputs.empty() && sums.empty(); }
};
PassWork workOf(const KernelShape &shape, int pass);

/// Return one step of a reduction, and its neutral element.
mlir::Value combine(Lanes &lanes, mlir::Operation *reduction, mlir::Value a, mlir::Value x);
mlir::Value neutral(Lanes &lanes, mlir::Operation *reduction, int width);
/// Reduces all lanes to one number, in a fixed tree order.
mlir::Value combineLanes(Lanes &lanes, mlir::Operation *reduction, mlir::Value vector);

/// Emits the row values that exist once the reductions before `pass` are done.
void emitRowValues(Evaluator &evaluator, const KernelShape &shape, int pass);
/// Stores the outputs among these row values and among the values that exist once.
void storeRowValues(Evaluator &evaluator, const KernelShape &shape, int pass);

} // namespace espalier::codegen
