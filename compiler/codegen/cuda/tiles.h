// Products of tiles in shared memory, for attention. A block of threads holds a tile of scores [rows, columns] and
// tiles of sums [rows, columns of q or v] in registers, distributed over its threads. 16-bit tiles use
// mma.sync.m16n8k16, f32 tiles use fma; all other code is shared.
#pragma once

#include "compiler/codegen/cuda/expression.h"

#include <memory>

namespace espalier::codegen::cuda {

/// The length of the rows of a tile.
struct TileDepth {
  int64_t elements, elementBytes;

  /// Returns the elements rounded up to whole mma steps; the padding is zero.
  int64_t padded() const { return (elements + 15) / 16 * 16; }
  /// Returns the bytes between rows in shared memory. An odd number of 16-byte pieces puts eight consecutive rows into
  /// eight different groups of banks.
  int64_t pitch() const { return padded() * elementBytes + 16; }
};

/// The sizes of a block's tiles.
struct TileSizes {
  mlir::Type element; ///< bf16, f16 or f32
  int64_t rows;       ///< rows per block
  int64_t columns;    ///< columns processed at a time
  int64_t headDim;    ///< length of the rows of q and k
  int64_t valueDim;   ///< length of the rows of v and out
  int warps;
  int stages; ///< tiles of columns in shared memory: with two, one is loaded while the other is used

  int threads() const { return warps * 32; }
  int64_t elementBytes() const { return element.getIntOrFloatBitWidth() / 8; }
  TileDepth ofKeys() const { return {headDim, elementBytes()}; }
  TileDepth ofValues() const { return {valueDim, elementBytes()}; }
  /// Returns the bytes of a pair of tiles of columns, one as long as keys and one as long as values.
  int64_t pairBytes() const { return columns * (ofKeys().pitch() + ofValues().pitch()); }
  /// Returns the shared memory in bytes that the products need for themselves.
  int64_t scratchBytes() const { return element.isF32() ? rows * (columns + 4) * 4 : 0; }
};

/// Rows of a tensor in global memory that are loaded into a tile. Row r begins `r * stride` elements after `base`; rows
/// from `count` on are zero.
struct TileSource {
  Expr base;   ///< pointer
  Expr stride; ///< i64
  Expr count;  ///< i32
};

/// One thread's part of the tiles. A slot is an index into a Grid. Row slots, column slots and sum slots denote rows,
/// columns and elements of a row of sums.
class Tiles {
public:
  /// Makes the kind of tiles that the element type needs. `scratch` is a byte offset in shared memory.
  static std::unique_ptr<Tiles> make(KernelFunction &f, const TileSizes &sizes, Expr scratch);
  virtual ~Tiles() = default;

  std::vector<Expr> rows, columns; ///< i32, within the tile
  Expr firstRow, lastRow;          ///< the first and last row that are processed together with this thread's: the
                                   ///< warp's rows, or all
  /// Returns the number of slots in a row of sums.
  virtual int sumSlots(TileDepth depth) const = 0;
  int rowLanes = 1; ///< number of neighbouring lanes that hold the same rows; rowLane is the index among them
  Expr rowLane;

  /// Computes scores[r][c] = sum over d of a[r, d] * b[c, d]. `a`, `b`: i32 byte offsets of tiles in shared memory.
  virtual Grid multiplyAcross(Expr a, Expr b, TileDepth depth) = 0;
  /// Returns sums[r][d] + sum over c of weights[r][c] * b[c, d]. All threads take part.
  virtual Grid multiplyAlong(const Grid &weights, Expr b, Grid sums, TileDepth depth) = 0;
  /// Reduces over all columns of a row.
  virtual Expr reduceRow(Expr x, Reduction reduction) = 0;
  /// Stores a row of sums to the elements at the pointer `to`.
  virtual void storeRow(const std::vector<Expr> &sums, Expr to, TileDepth depth) = 0;

  /// Starts to copy a tile of `count` rows to byte offset `to` of shared memory. Complete after waitForCopies() and a
  /// barrier.
  void startCopy(const TileSource &source, int64_t count, Expr to, TileDepth depth);
  /// Starts to copy `count` floats that are `stride` apart.
  void startFloats(const TileSource &source, int64_t count, Expr to);
  void waitForCopies();

protected:
  Tiles(KernelFunction &f, const TileSizes &sizes) : f(f), sizes(sizes) {}
  Expr integer(int64_t value) { return {f, f.integer(value)}; }
  /// Returns an address in shared memory; `constant` is folded into the instruction.
  mlir::Value placeOf(Expr offset, int64_t constant = 0);

  KernelFunction &f;
  const TileSizes sizes;

private:
  /// Copies 16 bytes, or writes zeros if not `isThere`.
  void copyPiece(Expr from, Expr to, Expr isThere);
};

} // namespace espalier::codegen::cuda
