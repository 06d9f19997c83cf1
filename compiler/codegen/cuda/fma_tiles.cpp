// Tiles of f32 by fma. 16 x 16 threads form a square. A thread holds neighbouring rows and every 16th column, so the
// threads of a row are 16 neighbouring lanes. Weights are exchanged through shared memory.
#include "compiler/codegen/cuda/tile_kinds.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

constexpr int64_t side = 16;

class FmaTiles final : public Tiles {
public:
  FmaTiles(KernelFunction &f, const TileSizes &sizes, Expr scratch) : Tiles(f, sizes), scratch(scratch) {
    Expr thread(f, f.threadIndex());
    x = thread % side;
    rowSlots = sizes.rows / side;
    threadRow = thread / side * rowSlots;
    firstRow = integer(0);
    lastRow = integer(sizes.rows - 1);
    rowLanes = side;
    rowLane = x;
    for (int64_t slot = 0; slot < rowSlots; ++slot)
      rows.push_back(threadRow + slot);
    for (int64_t slot = 0; slot < sizes.columns / side; ++slot)
      columns.push_back(x + slot * side);
  }

  int sumSlots(TileDepth depth) const override { return static_cast<int>(depth.padded() / side); }

  Grid multiplyAcross(Expr a, Expr b, TileDepth depth) override {
    std::vector<Variable> sums = variables(Grid(rowSlots, std::vector<Expr>(columns.size(), number(0))));
    Expr left = a + threadRow * depth.pitch(), right = b + x * depth.pitch();
    loop(integer(0), integer(depth.padded() * 4), 16, [&](Expr d) {
      std::vector<std::array<Expr, 4>> rowsOfA;
      for (int64_t row = 0; row < rowSlots; ++row)
        rowsOfA.push_back(loadFour(left + d, row * depth.pitch()));
      for (size_t column = 0; column < columns.size(); ++column) {
        std::array<Expr, 4> ofB = loadFour(right + d, static_cast<int64_t>(column) * side * depth.pitch());
        for (int64_t row = 0; row < rowSlots; ++row)
          for (int i = 0; i < 4; ++i)
            add(sums[row * columns.size() + column], rowsOfA[row][i], ofB[i]);
      }
    });
    return values(sums, columns.size());
  }

  Grid multiplyAlong(const Grid &weights, Expr b, Grid grid, TileDepth depth) override {
    int64_t pitch = (sizes.columns + 4) * 4;
    int slots = sumSlots(depth);
    Expr left = scratch + threadRow * pitch;
    f.barrier(); // all threads have read the weights of the previous product
    for (int64_t row = 0; row < rowSlots; ++row)
      for (size_t column = 0; column < columns.size(); ++column)
        f.b.create<LLVM::StoreOp>(weights[row][column].get(), placeOf(left + columns[column] * 4, row * pitch), 4);
    f.barrier();
    std::vector<Variable> sums = variables(grid);
    Expr right = b + x * 4;
    loop(integer(0), integer(sizes.columns), 1, [&](Expr column) {
      std::vector<Expr> weight;
      for (int64_t row = 0; row < rowSlots; ++row)
        weight.push_back(loadOne(left + column * 4, row * pitch));
      for (int slot = 0; slot < slots; ++slot) {
        Expr ofB = loadOne(right + column * depth.pitch(), slot * side * 4);
        for (int64_t row = 0; row < rowSlots; ++row)
          add(sums[row * slots + slot], weight[row], ofB);
      }
    });
    return values(sums, slots);
  }

  Expr reduceRow(Expr value, Reduction reduction) override { return {f, f.reduceWarp(value.get(), reduction, side)}; }

  void storeRow(const std::vector<Expr> &sums, Expr to, TileDepth depth) override {
    for (int slot = 0; slot < sumSlots(depth); ++slot) {
      Expr d = x + slot * side;
      auto store = [&] { f.store(sums[slot].get(), to.get(), d.get(), f.b.getF32Type()); };
      if ((slot + 1) * side <= depth.elements)
        store();
      else
        when(d < depth.elements, store);
    }
  }

private:
  Expr number(double value) { return {f, f.number(value)}; }

  Expr loadOne(Expr offset, int64_t constant) {
    return {f, f.b.create<LLVM::LoadOp>(f.b.getF32Type(), placeOf(offset, constant), 4)};
  }

  std::array<Expr, 4> loadFour(Expr offset, int64_t constant) {
    Value words = f.b.create<LLVM::LoadOp>(VectorType::get({4}, f.b.getF32Type()), placeOf(offset, constant), 16);
    std::array<Expr, 4> four;
    for (int i = 0; i < 4; ++i)
      four[i] = Expr(f, f.extract(words, i));
    return four;
  }

  void add(Variable &sum, Expr a, Expr b) { sum.set(Expr(f, f.fma(a.get(), b.get(), sum.get().get()))); }

  std::vector<Variable> variables(const Grid &grid) {
    std::vector<Variable> all;
    for (const std::vector<Expr> &row : grid)
      for (Expr value : row)
        all.emplace_back(value);
    return all;
  }

  Grid values(const std::vector<Variable> &sums, size_t width) {
    Grid grid(rowSlots);
    for (size_t i = 0; i < sums.size(); ++i)
      grid[i / width].push_back(sums[i].get());
    return grid;
  }

  Expr scratch, x, threadRow;
  int64_t rowSlots;
};

} // namespace

std::unique_ptr<Tiles> makeFmaTiles(KernelFunction &f, const TileSizes &sizes, Expr scratch) {
  return std::make_unique<FmaTiles>(f, sizes, scratch);
}

std::unique_ptr<Tiles> Tiles::make(KernelFunction &f, const TileSizes &sizes, Expr scratch) {
  return sizes.element.isF32() ? makeFmaTiles(f, sizes, scratch) : makeMmaTiles(f, sizes);
}

} // namespace espalier::codegen::cuda
