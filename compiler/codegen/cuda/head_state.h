// The state of one head of a recurrence in the registers of a block, see StateLayout.
#pragma once

#include "compiler/codegen/cuda/special_kernels.h"

namespace espalier::codegen::cuda {

/// The rows of a column that a thread holds.
using StateRows = std::vector<Variable>;

/// One head of one run of positions, with the columns of a block. Positions count from the beginning of the run.
class HeadState {
public:
  /// `columns` are those of a state: of v, or more. v is 0 in further columns.
  HeadState(KernelFunction &f, exec::KernelOp kernel, int64_t columns);

protected:
  bool has(llvm::StringRef parameter) const { return parameters.contains(parameter); }
  Expr zero() const { return {f, f.number(0)}; }
  Expr index(int64_t value) const { return {f, f.integer(value, 64)}; }
  Expr buffer(llvm::StringRef operand) const { return {f, f.buffer(operand)}; }
  /// Returns zeros, or those of the factor A: the unit matrix, or ones.
  StateRows begin(bool hasFactor) const;

  /// Return elements of an operand at position `t`: the rows of a key, an element of a value, a number of the head.
  std::vector<Expr> key(llvm::StringRef operand, Expr t) const;
  Expr value(llvm::StringRef operand, Expr t) const;
  Expr number(llvm::StringRef operand, Expr t) const;
  /// Returns by what a state is multiplied before position `t`: one factor per row.
  std::vector<Expr> fades(Expr t) const;
  Expr isReset(Expr t) const;
  /// Stores an element of a value, rounded to its type.
  void setValue(Expr x, llvm::StringRef operand, Expr t) const;

  /// Advances a state to position `t`. Returns e, the error of the delta rule or v.
  Expr advance(StateRows &state, Expr t) const;
  /// Goes back to the gradient of the state before position `t`. Returns du; `visit`, if given, gets the gradient of
  /// the state after the position, and du.
  void goBack(StateRows &gradient, Expr t, Expr dout,
              const std::function<void(const std::vector<Expr> &, Expr)> &visit) const;
  /// Replaces a state, or the gradient of one if `isBackward`, by that at the other end of run `run` of other ranks.
  void pass(StateRows &state, Expr run, bool isBackward) const;
  /// Passes through the runs before this one.
  void enter(StateRows &state) const;

  /// Returns a . b over the rows of a column, for all lanes of the column.
  Expr dot(const std::vector<Expr> &a, const std::vector<Expr> &b) const;
  /// Load or store a state in an f32 matrix [key_dim, stride], which begins at element `first` of the operand.
  std::vector<Expr> loadMatrix(llvm::StringRef operand, Expr first, int64_t stride) const;
  void storeMatrix(const StateRows &state, llvm::StringRef operand, Expr first, int64_t stride) const;

  static std::vector<Expr> get(const StateRows &rows);

  KernelFunction &f;
  const exec::KernelOp kernel;
  const mlir::DictionaryAttr parameters;
  const mlir::Type element, f32, i32;
  const int64_t keyDim, valueDim, columns;
  const StateLayout layout;
  const bool hasDelta, isByColumn;
  const int64_t own;                         ///< runs per sample
  const Expr heads, group, allHeads, length; ///< `length` of a run
  const Expr unit, head, run, firstToken;    ///< `unit` counts heads of runs, `run` the runs of all samples
  Expr count, ownRun;                        ///< runs of the sequence, and the number of this run among them
  const Expr part, column, firstRow;         ///< `part` of the column, and its first row
  const Expr isColumn;
};

} // namespace espalier::codegen::cuda
