// Tiles of 16-bit elements on tensor cores. A warp holds `rows / warps` rows in pieces of 16. Of each piece, lane l
// holds rows l / 4 and l / 4 + 8 and, of every 8 columns, columns 2 (l % 4) and 2 (l % 4) + 1 (PTX ISA, mma.m16n8k16).
#include "compiler/codegen/cuda/tile_kinds.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

/// The four registers of an ldmatrix or mma operand.
using Fragment = std::array<Value, 4>;

class MmaTiles final : public Tiles {
public:
  MmaTiles(KernelFunction &f, const TileSizes &sizes) : Tiles(f, sizes) {
    lane = Expr(f, f.laneIndex());
    warpRow = Expr(f, f.warpIndex()) * (sizes.rows / sizes.warps);
    rowPieces = sizes.rows / sizes.warps / 16;
    firstRow = warpRow;
    lastRow = warpRow + (sizes.rows / sizes.warps - 1);
    rowLanes = 4;
    rowLane = lane % 4;
    for (int64_t piece = 0; piece < rowPieces; ++piece)
      for (int half = 0; half < 2; ++half)
        rows.push_back(warpRow + lane / 4 + (piece * 16 + half * 8));
    for (int64_t group = 0; group < sizes.columns / 8; ++group)
      for (int odd = 0; odd < 2; ++odd)
        columns.push_back((lane % 4) * 2 + (group * 8 + odd));
  }

  int sumSlots(TileDepth depth) const override { return static_cast<int>(depth.padded() / 8 * 2); }

  Grid multiplyAcross(Expr a, Expr b, TileDepth depth) override {
    int64_t groups = sizes.columns / 8;
    std::vector<Fragment> sums = zeros(rowPieces * groups);
    Expr left = a + warpRow * depth.pitch() + laneOffset(lane % 16, lane / 16, depth);
    Expr right = b + laneOffset(lane % 8 + (lane / 16) * 8, lane / 8 % 2, depth);
    for (int64_t k = 0; k < depth.padded(); k += 16) {
      std::vector<Fragment> rowsOfA;
      for (int64_t piece = 0; piece < rowPieces; ++piece)
        rowsOfA.push_back(loadMatrices(left, piece * 16 * depth.pitch() + k * 2, /*transposed=*/false));
      for (int64_t group = 0; group < groups; group += 2) {
        Fragment columnsOfB = loadMatrices(right, group * 8 * depth.pitch() + k * 2, /*transposed=*/false);
        for (int64_t piece = 0; piece < rowPieces; ++piece)
          for (int64_t i = 0; i < 2; ++i)
            multiply(sums[piece * groups + group + i], rowsOfA[piece], columnsOfB[2 * i], columnsOfB[2 * i + 1]);
      }
    }
    return toGrid(sums, groups);
  }

  Grid multiplyAlong(const Grid &weights, Expr b, Grid grid, TileDepth depth) override {
    int64_t groups = depth.padded() / 8;
    std::vector<Fragment> sums = fromGrid(grid, groups);
    Expr right = b + laneOffset(lane % 16, lane / 16, depth);
    for (int64_t k = 0; k < sizes.columns; k += 16) {
      std::vector<Fragment> rowsOfA;
      for (int64_t piece = 0; piece < rowPieces; ++piece)
        rowsOfA.push_back(packWeights(weights, piece, k / 8));
      for (int64_t group = 0; group < groups; group += 2) {
        Fragment columnsOfB = loadMatrices(right, k * depth.pitch() + group * 16, /*transposed=*/true);
        for (int64_t piece = 0; piece < rowPieces; ++piece)
          for (int64_t i = 0; i < 2; ++i)
            multiply(sums[piece * groups + group + i], rowsOfA[piece], columnsOfB[2 * i], columnsOfB[2 * i + 1]);
      }
    }
    return toGrid(sums, groups);
  }

  Expr reduceRow(Expr x, Reduction reduction) override { return {f, f.reduceWarp(x.get(), reduction, rowLanes)}; }

  void storeRow(const std::vector<Expr> &sums, Expr to, TileDepth depth) override {
    for (int64_t group = 0; group < depth.elements / 8; ++group) {
      Value pair = f.packPair(sums[2 * group].get(), sums[2 * group + 1].get(), sizes.element);
      f.storeWords(pair, elementAt(to, (lane % 4) * 2 + group * 8, sizes.element).get());
    }
  }

private:
  /// Returns the offset that a lane passes to ldmatrix: a row of a tile and one of its 16-byte pieces.
  static Expr laneOffset(Expr row, Expr piece, TileDepth depth) { return row * depth.pitch() + piece * 16; }

  std::vector<Fragment> zeros(int64_t count) {
    Value zero = f.number(0);
    return std::vector<Fragment>(count, {zero, zero, zero, zero});
  }

  Fragment results(Value structure) {
    Fragment fragment;
    for (int i = 0; i < 4; ++i)
      fragment[i] = f.b.create<LLVM::ExtractValueOp>(structure, i);
    return fragment;
  }

  Type structureOf(Type element) {
    return LLVM::LLVMStructType::getLiteral(f.b.getContext(), SmallVector<Type>(4, element));
  }

  Fragment loadMatrices(Expr offset, int64_t constant, bool transposed) {
    const char *name = transposed ? "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16"
                                  : "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16";
    return results(f.intrinsic(name, structureOf(f.b.getI32Type()), placeOf(offset, constant)));
  }

  /// Computes sum += a b for 16 rows, 8 columns and a depth of 16.
  void multiply(Fragment &sum, const Fragment &a, Value b0, Value b1) {
    const bool isHalf = sizes.element.isF16();
    SmallVector<Value> arguments(a.begin(), a.end());
    arguments.append({b0, b1});
    if (isHalf)
      for (Value &word : arguments)
        word = f.b.create<LLVM::BitcastOp>(VectorType::get({2}, f.b.getF16Type()), word);
    arguments.append(sum.begin(), sum.end());
    sum = results(f.intrinsic(isHalf ? "llvm.nvvm.mma.m16n8k16.row.col.f32.f32" : "llvm.nvvm.mma.m16n8k16.row.col.bf16",
                              structureOf(f.b.getF32Type()), arguments));
  }

  /// Scores of 16 rows and 16 columns already have the register layout of mma's left operand.
  Fragment packWeights(const Grid &weights, int64_t piece, int64_t group) {
    Fragment packed;
    for (int64_t i = 0; i < 4; ++i) {
      const std::vector<Expr> &row = weights[2 * piece + i % 2];
      int64_t slot = 2 * (group + i / 2);
      packed[i] = f.packPair(row[slot].get(), row[slot + 1].get(), sizes.element);
    }
    return packed;
  }

  Grid toGrid(const std::vector<Fragment> &sums, int64_t groups) {
    Grid grid(2 * rowPieces, std::vector<Expr>(2 * groups));
    for (int64_t piece = 0; piece < rowPieces; ++piece)
      for (int64_t group = 0; group < groups; ++group)
        for (int i = 0; i < 4; ++i)
          grid[2 * piece + i / 2][2 * group + i % 2] = Expr(f, sums[piece * groups + group][i]);
    return grid;
  }

  std::vector<Fragment> fromGrid(const Grid &grid, int64_t groups) {
    std::vector<Fragment> sums(rowPieces * groups);
    for (int64_t piece = 0; piece < rowPieces; ++piece)
      for (int64_t group = 0; group < groups; ++group)
        for (int i = 0; i < 4; ++i)
          sums[piece * groups + group][i] = grid[2 * piece + i / 2][2 * group + i % 2].get();
    return sums;
  }

  Expr lane, warpRow;
  int64_t rowPieces;
};

} // namespace

std::unique_ptr<Tiles> makeMmaTiles(KernelFunction &f, const TileSizes &sizes) {
  return std::make_unique<MmaTiles>(f, sizes);
}

} // namespace espalier::codegen::cuda
