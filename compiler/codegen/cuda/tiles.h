// Products of tiles in shared memory as attention needs them: a block of threads holds a tile of scores [rows, columns]
// and tiles of sums [rows, head_dim] in registers, spread over its threads. Stored in 16 bits they are multiplied by
// mma.sync.m16n8k16, in f32 by fma; all else is the same code for both.
#pragma once

#include "compiler/codegen/cuda/expression.h"

#include <memory>

namespace espalier::codegen::cuda {

/// Sizes of a block's tiles.
struct TileSizes {
  mlir::Type element; ///< bf16, f16 or f32
  int64_t rows;       ///< that a block holds
  int64_t columns;    ///< that it goes through at once
  int64_t headDim;    ///< length of each row and column
  int warps;
  int stages; ///< tiles of columns in shared memory at once: with two, one is loaded while the other is used

  int threads() const { return warps * 32; }
  int64_t elementBytes() const { return element.getIntOrFloatBitWidth() / 8; }
  /// Whole steps of mma; what is above head_dim is zero.
  int64_t paddedDim() const { return (headDim + 15) / 16 * 16; }
  /// Bytes from row to row in shared memory: an odd number of 16-byte pieces, so that eight rows lie in eight different
  /// groups of banks.
  int64_t pitch() const { return paddedDim() * elementBytes() + 16; }
  int64_t rowBytes() const { return rows * pitch(); }
  int64_t columnBytes() const { return columns * pitch(); }
  /// What the products need for themselves.
  int64_t scratchBytes() const { return element.isF32() ? rows * (columns + 4) * 4 : 0; }
};

/// Rows of a tensor in global memory that become a tile: row r of the tile begins `r * stride` elements behind `base`;
/// from row `count` on it is zero.
struct TileSource {
  Expr base;   ///< pointer
  Expr stride; ///< i64
  Expr count;  ///< i32
};

/// The part of the tiles that one thread holds. A slot is a place in a Grid; row slots, column slots and sum slots have
/// rows, columns and elements of head_dim.
class Tiles {
public:
  static std::unique_ptr<Tiles> make(KernelFunction &f, const TileSizes &sizes, Expr scratch);
  virtual ~Tiles() = default;

  std::vector<Expr> rows, columns; ///< i32, within the tile
  Expr firstRow, lastRow;          ///< of those that go through a tile together: the warp's, or all
  int sumSlots = 0;
  int rowLanes = 1; ///< neighbouring lanes that hold the same rows; which one of them this is
  Expr rowLane;

  /// scores[r][c] = sum over d of a[r, d] * b[c, d]; `a`, `b`: i32 byte offsets of tiles in shared memory.
  virtual Grid multiplyAcross(Expr a, Expr b) = 0;
  /// sums[r][d] + sum over c of weights[r][c] * b[c, d]; all threads take part.
  virtual Grid multiplyAlong(const Grid &weights, Expr b, Grid sums) = 0;
  /// Over all columns of a row.
  virtual Expr reduceRow(Expr x, Reduction reduction) = 0;
  /// Stores the row of `sums` in slot `row` to head_dim elements at `to`, a pointer.
  virtual void storeRow(const std::vector<Expr> &sums, Expr to) = 0;

  /// Begins to copy a tile of `count` rows to byte offset `to` of shared memory; done after waitForCopies and a
  /// barrier.
  void startCopy(const TileSource &source, int64_t count, Expr to);
  /// The same for `count` floats, `stride` apart.
  void startFloats(const TileSource &source, int64_t count, Expr to);
  void waitForCopies();

protected:
  Tiles(KernelFunction &f, const TileSizes &sizes) : f(f), sizes(sizes) {}
  Expr integer(int64_t value) { return {f, f.integer(value)}; }
  /// A place in shared memory; `constant` becomes part of the instruction.
  mlir::Value placeOf(Expr offset, int64_t constant = 0);

  KernelFunction &f;
  const TileSizes sizes;

private:
  /// 16 bytes, zeros where nothing is there.
  void copyPiece(Expr from, Expr to, Expr isThere);
};

} // namespace espalier::codegen::cuda
