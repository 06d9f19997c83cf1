// Products of rows with the matrices of their experts, like runtime/kernels/grouped.cpp. The row of a product has one
// owner. The row of a gradient belongs to one expert, whose rows are neighbours in each sample of its holder.
#include "compiler/codegen/cuda/special_kernels.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

class Grouped {
public:
  Grouped(KernelFunction &f, exec::KernelOp kernel)
      : f(f), kernel(kernel), batch(f, f.scalar("batch")), capacity(f, f.scalar("capacity")),
        each(Expr(f, f.scalar("experts")) / Expr(f, f.scalar("holders"))),
        row(Expr(f, f.blockBegin()) + wide(Expr(f, f.warpIndex()))),
        column(wide(Expr(f, f.blockY())) * 32 + wide(Expr(f, f.laneIndex()))) {}

  /// A warp computes a row of the result, each lane one column of 32. `in` and `out` are the sizes of rows of x and of
  /// the result.
  void buildProduct(StringRef in, StringRef out, bool isTransposed) {
    Expr depth(f, f.scalar(in)), columns(f, f.scalar(out)), block = batch * capacity;
    when((row < Expr(f, f.scalar("holders")) * block) & (column < columns), [&] {
      Expr owner = ownerOf(row);
      Variable sum(Expr(f, f.number(0)));
      when(owner >= 0, [&] {
        Expr expert = row / block * each + wide(owner), matrix = expert * depth * columns;
        loop(Expr(f, f.integer(0, 64)), depth, 1, [&](Expr at) {
          Expr place = isTransposed ? matrix + column * depth + at : matrix + at * columns + column;
          sum.set(sum.get() + load("x", row * depth + at) * load("w", place));
        });
      });
      f.store(sum.get().get(), f.buffer("y"), (row * columns + column).get(), typeParameter(kernel, "y"));
    });
  }

  void buildGradient() {
    Expr k(f, f.scalar("k")), n(f, f.scalar("n"));
    when((row < Expr(f, f.scalar("experts")) * k) & (column < n), [&] {
      Expr expert = row / k, line = row % k, owner = narrow(expert % each);
      Variable sum(Expr(f, f.number(0)));
      loop(expert / each * batch, (expert / each + 1) * batch, 1, [&](Expr block) {
        loop(firstOf(block, owner), firstOf(block, owner + 1), 1,
             [&](Expr at) { sum.set(sum.get() + load("x", at * k + line) * load("dy", at * n + column)); });
      });
      storeGradient(row * n + column, sum.get());
    });
  }

private:
  void storeGradient(Expr place, Expr sum) {
    Type type = typeParameter(kernel, "dw");
    auto before = [&] { return Expr(f, f.load(f.buffer("dw"), place.get(), type)); };
    Destination destination = destinationOf(kernel);
    Variable result(sum);
    if (destination == Destination::Add)
      result.set(before() + sum);
    else if (destination == Destination::AddUnlessFirst)
      when(Expr(f, f.scalar("FIRST")) == 0, [&] { result.set(before() + sum); });
    f.store(result.get().get(), f.buffer("dw"), place.get(), type);
  }
  Expr load(StringRef operand, Expr index) {
    return {f, f.load(f.buffer(operand), index.get(), typeParameter(kernel, operand))};
  }
  Expr ownerOf(Expr at) {
    return loadValue(elementAt(Expr(f, f.buffer("owners")), at, f.b.getI32Type()), f.b.getI32Type());
  }

  /// Returns the first row of a sample of a holder whose owner is at least `owner`, or the end. Rows without an owner
  /// come last.
  Expr firstOf(Expr block, Expr owner) {
    Variable begin(block * capacity), end((block + 1) * capacity);
    loopWhile([&] { return begin.get() < end.get(); },
              [&] {
                Expr middle = (begin.get() + end.get()) / 2;
                Expr isBefore = unsignedAtLeast(owner - 1, ownerOf(middle)) & (owner > 0);
                begin.set(select(isBefore, middle + 1, begin.get()));
                end.set(select(isBefore, end.get(), middle));
              });
    return begin.get();
  }

  KernelFunction &f;
  exec::KernelOp kernel;
  const Expr batch, capacity, each, row, column; ///< i64
};

} // namespace

template <> LogicalResult build<SpecialKernel::grouped>(KernelFunction &f, exec::KernelOp kernel) {
  Grouped(f, kernel).buildProduct("k", "n", /*isTransposed=*/false);
  return success();
}

template <> LogicalResult build<SpecialKernel::grouped_transposed>(KernelFunction &f, exec::KernelOp kernel) {
  Grouped(f, kernel).buildProduct("n", "k", /*isTransposed=*/true);
  return success();
}

template <> LogicalResult build<SpecialKernel::grouped_gradient>(KernelFunction &f, exec::KernelOp kernel) {
  Grouped(f, kernel).buildGradient();
  return success();
}

} // namespace espalier::codegen::cuda
