// Concatenation of columns, and its inverse. A thread has a few neighbouring columns of a row and moves them in all
// heads.
#include "compiler/codegen/cuda/special_kernels.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

/// The loads and stores of both kernels.
class ColumnMoves {
public:
  ColumnMoves(KernelFunction &f, exec::KernelOp kernel)
      : f(f), element(typeParameter(kernel, "type")), columns(integerParameter(kernel, "columns")),
        width(static_cast<int>(integerParameter(kernel, "width"))), byHead(kernel.getParameters()->contains("by_head")),
        heads(f, f.scalar("heads")) {}

  /// Copies a, then b, to y.
  void concat(int64_t ofA, int64_t ofB) {
    forEachPiece(columns, [&](Expr row, Expr column) {
      auto copy = [&](StringRef from, Expr first, int64_t count, bool isByHead) {
        auto loadAt = [&](Expr place) { return load(from, place * count + wide(first)); };
        std::vector<Expr> shared;
        if (!isByHead)
          shared = loadAt(row);
        forEachHead(row, [&](Expr head) { store(isByHead ? loadAt(head) : shared, head * columns + wide(column)); });
      };
      when(column < ofA, [&] { copy("a", column, ofA, /*isByHead=*/true); });
      when(column >= ofA, [&] { copy("b", column - ofA, ofB, byHead); });
    });
  }

  /// Copies `taken` columns of x from `first` on to y, or sums them over the heads.
  void take(int64_t first, int64_t taken) {
    forEachPiece(taken, [&](Expr row, Expr column) {
      auto loadAt = [&](Expr head) { return load("x", head * columns + wide(column + first)); };
      if (byHead)
        return forEachHead(row, [&](Expr head) { store(loadAt(head), head * taken + wide(column)); });
      std::vector<Variable> sums;
      for (int i = 0; i < width; ++i)
        sums.emplace_back(Expr(f, f.number(0)));
      forEachHead(row, [&](Expr head) {
        std::vector<Expr> terms = loadAt(head);
        for (int i = 0; i < width; ++i)
          sums[i].set(sums[i].get() + terms[i]);
      });
      std::vector<Expr> totals;
      for (const Variable &sum : sums)
        totals.push_back(sum.get());
      store(totals, row * taken + wide(column));
    });
  }

private:
  /// Runs `body` with each row of the block and the first column of each of its pieces, of `count` columns in all.
  void forEachPiece(int64_t count, const std::function<void(Expr, Expr)> &body) {
    Expr begin(f, f.blockBegin()), rows = narrow(Expr(f, f.blockEnd()) - begin);
    int64_t perRow = count / width;
    loop(Expr(f, f.threadIndex()), rows * perRow, f.geometry.getThreads(),
         [&](Expr piece) { body(begin + wide(piece / perRow), piece % perRow * width); });
  }

  /// Runs `body` with the number of each head of a row, counted over all rows.
  void forEachHead(Expr row, const std::function<void(Expr)> &body) { loop(row * heads, (row + 1) * heads, 1, body); }

  std::vector<Expr> load(StringRef operand, Expr place) {
    return loadElements(elementAt(Expr(f, f.buffer(operand)), place, element), element, width);
  }
  void store(const std::vector<Expr> &values, Expr place) {
    storeElements(values, elementAt(Expr(f, f.buffer("y")), place, element), element);
  }

  KernelFunction &f;
  const Type element;
  const int64_t columns; ///< of the tensor with all columns
  const int width;       ///< elements of a load
  const bool byHead;
  const Expr heads;
};

} // namespace

template <> LogicalResult build<SpecialKernel::concat>(KernelFunction &f, exec::KernelOp kernel) {
  ColumnMoves(f, kernel).concat(integerParameter(kernel, "a_columns"), integerParameter(kernel, "b_columns"));
  return success();
}

template <> LogicalResult build<SpecialKernel::columns>(KernelFunction &f, exec::KernelOp kernel) {
  ColumnMoves(f, kernel).take(integerParameter(kernel, "first"), integerParameter(kernel, "taken"));
  return success();
}

} // namespace espalier::codegen::cuda
