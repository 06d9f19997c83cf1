// Products of a batch of matrices with few rows, such as the rows of experts in generation. The bytes of b bound the
// speed. A block computes some columns of one matrix: its warps take turns over the rows of b, and each lane sums a few
// neighbouring columns.
#include "compiler/codegen/cuda/special_kernels.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

class FewRows {
public:
  FewRows(KernelFunction &f, exec::KernelOp kernel)
      : f(f), rows(integerParameter(kernel, "m")), width(static_cast<int>(integerParameter(kernel, "width"))),
        a(typeParameter(kernel, "a")), b(typeParameter(kernel, "b")), c(typeParameter(kernel, "c")),
        n(f, f.scalar("n")), k(f, f.scalar("k")), matrix(f, f.blockBegin()), lane(f, f.laneIndex()),
        warp(f, f.warpIndex()), firstColumn(wide(Expr(f, f.blockY())) * (32 * width)) {
    for (int64_t sum = 0; sum < rows * width; ++sum)
      sums.emplace_back(Expr(f, f.number(0)));
  }

  void build() {
    Expr column = firstColumn + wide(lane * width), depth = depthOfFilled();
    Expr whole = depth / (warps * unrolled) * (warps * unrolled);
    when(column < n, [&] {
      loop(wide(warp), whole, warps * unrolled, [&](Expr at) { addProducts(at, column, unrolled); });
      loop(whole + wide(warp), depth, warps, [&](Expr at) { addProducts(at, column, 1); });
    });
    for (int64_t row = 0; row < rows; ++row)
      storeRow(row);
  }

private:
  static constexpr int64_t warps = fewRowsWarps, unrolled = 4;

  /// Returns k, or 0 if all elements of this matrix of a are 0. All threads of the block get the same number, so that
  /// none skips a barrier.
  Expr depthOfFilled() {
    Variable filled(Expr(f, f.number(0)));
    loop(wide(Expr(f, f.threadIndex())), k * rows, 32 * warps, [&](Expr i) {
      Expr isFilled = elementOfA(i) != 0;
      filled.set(select(isFilled, Expr(f, f.number(1)), filled.get()));
    });
    Expr any(f, f.reduceWarps(filled.get().get(), Reduction::Max, static_cast<int>(warps), f.shared()));
    return select(any > 0, k, Expr(f, f.integer(0, 64)));
  }

  Expr elementOfA(Expr index) { return {f, f.load(f.buffer("a"), (matrix * k * rows + index).get(), a)}; }

  /// Adds the products with `count` rows of b, from `at` on in steps of the number of warps.
  void addProducts(Expr at, Expr column, int64_t count) {
    std::vector<std::vector<Expr>> loaded;
    for (int64_t i = 0; i < count; ++i) {
      Expr place = (matrix * k + at + i * warps) * n + column;
      loaded.push_back(loadElements(elementAt(Expr(f, f.buffer("b")), place, b), b, width));
    }
    for (int64_t i = 0; i < count; ++i)
      for (int64_t row = 0; row < rows; ++row) {
        Expr factor = elementOfA(k * row + at + i * warps);
        for (int j = 0; j < width; ++j)
          sumOf(row, j).set(sumOf(row, j).get() + factor * loaded[static_cast<size_t>(i)][static_cast<size_t>(j)]);
      }
  }

  /// Adds the sums of the warps in order, and stores a row of c.
  void storeRow(int64_t row) {
    Expr thread(f, f.threadIndex());
    f.barrier(); // all threads have read the shared memory
    for (int j = 0; j < width; ++j)
      storeValue(sumOf(row, j).get(), sharedAt(f, (warp * (32 * width) + lane * width + j) * 4));
    f.barrier();
    Expr column = firstColumn + wide(thread);
    when((thread < 32 * width) & (column < n), [&] {
      Expr total(f, f.number(0));
      for (int64_t i = 0; i < warps; ++i)
        total = total + loadValue(sharedAt(f, (thread + i * 32 * width) * 4), f.b.getF32Type());
      storeElements({total}, elementAt(Expr(f, f.buffer("c")), (matrix * rows + row) * n + column, c), c);
    });
  }

  Variable &sumOf(int64_t row, int column) { return sums[static_cast<size_t>(row * width + column)]; }

  KernelFunction &f;
  const int64_t rows;
  const int width;
  const Type a, b, c;
  const Expr n, k, matrix, lane, warp, firstColumn;
  std::vector<Variable> sums; ///< [rows][width] of the lane
};

} // namespace

template <> LogicalResult build<SpecialKernel::few_rows>(KernelFunction &f, exec::KernelOp kernel) {
  FewRows(f, kernel).build();
  return success();
}

} // namespace espalier::codegen::cuda
