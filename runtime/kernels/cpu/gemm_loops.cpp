// Matrix products of one tile of c per call, by blocks as in Goto and van de Geijn, "Anatomy of
// high-performance matrix multiplication" (2008): a block of b (depth x all columns) stays in the
// second cache, panels of a go through the first. Operands are converted, transposed and paired
// while they are packed.
#include "runtime/kernels/cpu/gemm_tile.h"
#include "runtime/kernels/cpu/loops.h"

namespace espalier::rt::cpu::ESPALIER_LEVEL {

namespace {

constexpr int64_t kPanels =
    4; // panels of a packed at a time, so that reads of a transposed a fill cache lines
constexpr int64_t kPanel =
    kColumnStride * kDepth; // floats of a packed panel, the larger of its two layouts

/// Sizes of the pieces of a task, from its shape.
struct Blocks {
  bool paired;   // bf16 products on pairs
  int64_t depth; // elements of k per block
  int64_t rows;  // rows per panel of a, at most kTileRows, as even as can be
  int64_t width; // columns of c, rounded up to whole tiles
  bool direct;   // sums are kept in c itself

  explicit Blocks(const GemmTask &task) {
    paired = kPairs && task.a.storage == Storage::BF16 && task.b.storage == Storage::BF16;
    int64_t deepest = paired ? 2 * kDepth : kDepth;
    int64_t count = ceilDivide(task.k, deepest);
    depth = count ? minimum(deepest, roundUp(ceilDivide(task.k, count), 2 * kWidth)) : 0;
    rows = task.m ? ceilDivide(task.m, ceilDivide(task.m, kTileRows)) : 1;
    width = roundUp(task.n, kTileColumns);
    direct = task.c.storage == Storage::F32;
  }
  int64_t units() const { return paired ? ceilDivide(depth, 2) : depth; }
  int64_t bFloats() const { return units() * width; }
  int64_t aFloats() const { return kPanels * kPanel; }
  int64_t cFloats(const GemmTask &task) const {
    return direct ? kTileRows * kTileColumns : task.m * width;
  }
};

template <Storage S> const Element<S> *at(const Matrix &matrix, int64_t row, int64_t column) {
  int64_t offset = matrix.transposed ? column * matrix.stride + row : row * matrix.stride + column;
  return static_cast<const Element<S> *>(matrix.data) + offset;
}

template <Storage S, bool Paired>
void packB(const Matrix &b, int64_t k0, int64_t depth, int64_t n, float *out) {
  const Element<S> *from = at<S>(b, k0, 0);
  if (b.transposed)
    packTransposedPanels<S, Paired>(from, b.stride, depth, n, out);
  else
    packPanels<S, Paired>(from, b.stride, depth, n, out);
}

/// Packs rows [m0, m0 + rows) of the `m` rows of a as panels of `panelRows` rows, one each kPanel
/// floats.
template <Storage S, bool Paired>
void packA(const Matrix &a, int64_t m, int64_t m0, int64_t rows, int64_t panelRows, int64_t k0,
           int64_t depth, float *out) {
  constexpr int kElements = Reader<S, Paired>::kElements;
  int64_t available = m - m0;
  if (!a.transposed) {
    for (int64_t r = 0; r < rows; r += panelRows, out += kPanel)
      packRows<S, Paired>(at<S>(a, m0 + r, k0), a.stride, minimum(panelRows, rows - r), depth, out);
    return;
  }
  for (int64_t d = 0; d < depth; d += kElements) {
    const Element<S> *from = at<S>(a, m0, k0 + d);
    bool second = d + 1 < depth;
    float *to = out + d / kElements * kColumnStride;
    for (int64_t r = 0; r < rows; r += panelRows, to += kPanel) {
      int64_t count = minimum(panelRows, rows - r);
      for (int64_t lane = 0; lane < count; lane += kWidth) {
        // Lanes past the panel are not read by the tile: take whole vectors wherever they are
        // inside the rows given.
        int64_t safe = available - r - lane;
        storeFloats(to + lane, Reader<S, Paired>::across(from + r + lane, a.stride, safe, second));
      }
    }
  }
}

/// A block of an operand that is packed later. Its lines are fetched into the second cache between
/// tiles, a few at a time, so that packing does not wait for memory.
class NextBlock {
public:
  NextBlock() = default;

  /// `rows` x `columns` elements of op(matrix) from (row, column) on; nothing if either is not
  /// positive. They are fetched in `steps` calls of fetch().
  template <Storage S>
  static NextBlock of(const Matrix &matrix, int64_t row, int64_t rows, int64_t column,
                      int64_t columns, int64_t steps) {
    constexpr int64_t kBytes = sizeof(Element<S>);
    NextBlock block;
    if (rows <= 0 || columns <= 0)
      return block;
    block.line = reinterpret_cast<const char *>(at<S>(matrix, row, column));
    block.stride = matrix.stride * kBytes;
    block.lines = matrix.transposed ? columns : rows;
    block.bytes = (matrix.transposed ? rows : columns) * kBytes;
    block.linesPerStep = ceilDivide(block.lines, steps);
    return block;
  }

  void fetch() {
    int64_t count = minimum(lines, linesPerStep);
    lines -= count;
    for (; count > 0; --count, line += stride)
      for (int64_t byte = 0; byte < bytes; byte += kCacheLine)
        __builtin_prefetch(line + byte, /*rw=*/0, /*locality=*/2);
  }

private:
  static constexpr int64_t kCacheLine = 64;
  const char *line = nullptr; // as stored
  int64_t lines = 0, stride = 0, bytes = 0, linesPerStep = 0;
};

/// Where a task's sums go and how the last columns are cut.
struct Sums {
  float *data;
  int64_t stride;
  float *edge; // [kTileRows, kTileColumns] for tiles that reach over the last column; null if data
               // has room

  void run(Tile tile, const float *a, const float *b, int64_t units, int64_t row, int64_t rows,
           int64_t column, int64_t columns, bool accumulate) const {
    float *to = data + row * stride + column;
    if (!edge || columns >= kTileColumns)
      return tile(a, b, units, to, stride, accumulate);
    tile(a, b, units, edge, kTileColumns, false);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < columns; ++i) {
        float sum = edge[r * kTileColumns + i];
        to[r * stride + i] = accumulate ? to[r * stride + i] + sum : sum;
      }
  }
};

/// Adds the products of one group of panels of a and one block of b.
template <class Step, bool Transposed>
void multiplyGroup(const GemmTask &task, const Blocks &blocks, const float *a, const float *b,
                   int64_t units, int64_t m0, int64_t rows, const Sums &sums, bool accumulate,
                   NextBlock nextA, NextBlock &nextB) {
  for (int64_t r = 0; r < rows; r += blocks.rows, a += kPanel) {
    int64_t count = minimum(blocks.rows, rows - r);
    Tile tile =
        Transposed ? tileFor<Step, 1, kColumnStride>(count) : tileFor<Step, kDepth, 1>(count);
    for (int64_t n = 0; n < task.n; n += kTileColumns) {
      nextA.fetch();
      nextB.fetch();
      sums.run(tile, a, b + n * units, units, m0 + r, count, n, task.n - n, accumulate);
    }
  }
}

template <Storage A, Storage B, bool Paired>
void multiply(const GemmTask &task, const Blocks &blocks, const Sums &sums) {
  using Step = decltype([] {
    if constexpr (Paired)
      return PairStep{};
    else
      return FloatStep{};
  }());
  float *packedB = static_cast<float *>(task.scratch);
  float *packedA = packedB + blocks.bFloats();
  for (int64_t k0 = 0; k0 < task.k; k0 += blocks.depth) {
    int64_t depth = minimum(blocks.depth, task.k - k0);
    int64_t units = Paired ? ceilDivide(depth, 2) : depth;
    packB<B, Paired>(task.b, k0, depth, task.n, packedB);
    bool accumulate = k0 > 0 || (task.accumulate && blocks.direct);
    int64_t k1 = k0 + depth, tilesAcross = ceilDivide(task.n, kTileColumns);
    NextBlock nextB = NextBlock::of<B>(task.b, k1, minimum(blocks.depth, task.k - k1), 0, task.n,
                                       tilesAcross * ceilDivide(task.m, blocks.rows));
    for (int64_t m0 = 0; m0 < task.m; m0 += kPanels * blocks.rows) {
      int64_t rows = minimum(kPanels * blocks.rows, task.m - m0);
      packA<A, Paired>(task.a, task.m, m0, rows, blocks.rows, k0, depth, packedA);
      int64_t m1 = m0 + rows;
      if (task.a.transposed)
        multiplyGroup<Step, true>(task, blocks, packedA, packedB, units, m0, rows, sums,
                                  accumulate, {}, nextB);
      else
        multiplyGroup<Step, false>(
            task, blocks, packedA, packedB, units, m0, rows, sums, accumulate,
            NextBlock::of<A>(task.a, m1, minimum(rows, task.m - m1), k0, depth,
                             tilesAcross * ceilDivide(rows, blocks.rows)),
            nextB);
    }
  }
}

/// Rounds finished sums into a c that is not f32.
template <Storage S> void roundSums(const GemmTask &task, const Sums &sums) {
  for (int64_t m = 0; m < task.m; ++m) {
    Element<S> *row = static_cast<Element<S> *>(task.c.data) + m * task.c.stride;
    for (int64_t n = 0; n < task.n; n += kWidth) {
      int64_t count = minimum(kWidth, task.n - n);
      Floats value = loadFloats(sums.data + m * sums.stride + n);
      if (task.accumulate)
        value += loadFirst<S>(row + n, count);
      storeFirst<S>(row + n, value, count);
    }
  }
}

void clearSums(const GemmTask &task, const Sums &sums) {
  for (int64_t m = 0; m < task.m; ++m)
    for (int64_t n = 0; n < task.n; ++n)
      sums.data[m * sums.stride + n] = 0;
}

} // namespace

size_t gemmScratchBytes(const GemmTask &task) {
  Blocks blocks(task);
  return static_cast<size_t>(blocks.bFloats() + blocks.aFloats() + blocks.cFloats(task)) *
         sizeof(float);
}

void gemm(const GemmTask &task) {
  Blocks blocks(task);
  float *own = static_cast<float *>(task.scratch) + blocks.bFloats() + blocks.aFloats();
  Sums sums = blocks.direct ? Sums{static_cast<float *>(task.c.data), task.c.stride, own}
                            : Sums{own, blocks.width, nullptr};
  if (task.k == 0 && !(blocks.direct && task.accumulate))
    clearSums(task, sums);
  if (blocks.paired) {
    multiply<Storage::BF16, Storage::BF16, kPairs>(task, blocks, sums);
  } else {
    withStorage(task.a.storage, [&]<Storage A>() {
      withStorage(task.b.storage, [&]<Storage B>() { multiply<A, B, false>(task, blocks, sums); });
    });
  }
  if (!blocks.direct)
    withStorage(task.c.storage, [&]<Storage S>() { roundSums<S>(task, sums); });
}

} // namespace espalier::rt::cpu::ESPALIER_LEVEL
