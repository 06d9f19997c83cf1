// Matrix products, one tile of c per call, blocked as in Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication" (2008): a block of b (depth x all columns) stays in the L2 cache, panels of a stream through L1.
// Operands are converted, transposed and paired while they are packed. Packing is nearly the whole loss against peak
// (Zen 4, f32: the tiles alone reach 98 %; packing a vector takes 5 cycles from L2 and 20 from memory). Wide tiles
// therefore share packed operands, and operands are prefetched.
#include "runtime/kernels/cpu/few_rows.h"
#include "runtime/kernels/cpu/gemm_tile.h"
#include "runtime/kernels/cpu/loops.h"

namespace espalier::rt::cpu::ESPALIER_LEVEL {

namespace {

constexpr int64_t kPanels =
    4; // panels of a packed at a time (a group), so that reads of a transposed a use whole cache lines
constexpr int64_t kPanel = kColumnStride * kDepth; // floats of a packed panel, the larger of its two layouts

/// The block sizes of a task, derived from its shape.
struct Blocks {
  bool paired; // bf16 products on pairs
  bool isQuantized;
  int64_t depth; // elements of k per block
  int64_t rows;  // rows per panel of a, at most kTileRows, balanced
  int64_t width; // columns of c, rounded up to whole tiles
  bool direct;   // c itself holds the sums

  explicit Blocks(const GemmTask &task) {
    isQuantized = task.isQuantized;
    paired = kPairs && !isQuantized && task.a.storage == Storage::BF16 && task.b.storage == Storage::BF16;
    int64_t deepest = paired ? 2 * kDepth : kDepth;
    int64_t count = ceilDivide(task.k, deepest), step = isQuantized ? Q8Block::weights : 2 * kWidth;
    depth = count ? minimum(deepest, roundUp(ceilDivide(task.k, count), step)) : 0;
    rows = task.m ? ceilDivide(task.m, ceilDivide(task.m, kTileRows)) : 1;
    width = roundUp(task.n, kTileColumns);
    direct = task.c.storage == Storage::F32;
  }
  int64_t unitsOf(int64_t elements) const { return paired ? ceilDivide(elements, 2) : elements; }
  int64_t units() const { return unitsOf(depth); }
  /// Returns the floats of a packed panel of b with so many elements of depth, a multiple of the depth of a block or k.
  int64_t panelFloats(int64_t elements) const {
    constexpr int64_t ofRun = QuantizedPanel::kRunBytes / static_cast<int64_t>(sizeof(float));
    return isQuantized ? ceilDivide(elements, QuantizedPanel::kRun) * ofRun : unitsOf(elements) * kTileColumns;
  }
  int64_t bFloats() const { return units() * width; }
  int64_t aFloats() const { return kPanels * kPanel; }
  int64_t cFloats(const GemmTask &task) const { return direct ? kTileRows * kTileColumns : task.m * width; }
};

template <Storage S> const Element<S> *at(const Matrix &matrix, int64_t row, int64_t column) {
  int64_t offset = matrix.transposed ? column * matrix.stride + row : row * matrix.stride + column;
  return static_cast<const Element<S> *>(matrix.data) + offset;
}

/// Packs columns [n, n + columns) of a block of b, at most kTileColumns.
template <Storage S, bool Paired>
void packB(const Matrix &b, int64_t k0, int64_t depth, int64_t n, int64_t columns, float *out) {
  const Element<S> *from = at<S>(b, k0, n);
  if (b.transposed)
    packTransposedPanels<S, Paired>(from, b.stride, depth, columns, out);
  else
    packPanels<S, Paired>(from, b.stride, depth, columns, out);
}

/// Returns the memory of rows x columns elements of op(matrix) from (row, column) on, for prefetching.
template <Storage S> Ahead aheadOf(const Matrix &matrix, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  constexpr int64_t kBytes = sizeof(Element<S>);
  return Ahead(at<S>(matrix, row, column), matrix.transposed ? columns : rows, matrix.stride * kBytes,
               (matrix.transposed ? rows : columns) * kBytes);
}

/// Packs rows [m0, m0 + rows) of the `m` rows of a as panels of `panelRows` rows, one panel every kPanel floats.
template <Storage S, bool Paired>
void packA(const Matrix &a, int64_t m, int64_t m0, int64_t rows, int64_t panelRows, int64_t k0, int64_t depth,
           float *out) {
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
        // The tile ignores lanes past the panel, so whole vectors are read if they lie inside the given rows.
        int64_t safe = available - r - lane;
        storeFloats(to + lane, Reader<S, Paired>::across(from + r + lane, a.stride, safe, second));
      }
    }
  }
}

/// Returns the scratch floats in which b is packed.
int64_t scratchOfB(const GemmTask &task, const Blocks &blocks) { return task.packed ? 0 : blocks.bFloats(); }

/// The destination of a task's sums and the handling of the last columns.
struct Sums {
  float *data;
  int64_t stride;
  float *edge; // [kTileRows, kTileColumns] for tiles that cross the last column; null if data has room

  void run(Tile tile, const float *a, const float *b, int64_t units, int64_t row, int64_t rows, int64_t column,
           int64_t columns, bool accumulate, const Ahead &ahead) const {
    float *to = data + row * stride + column;
    if (!edge || columns >= kTileColumns)
      return tile(a, b, units, to, stride, accumulate, ahead);
    tile(a, b, units, edge, kTileColumns, false, ahead);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < columns; ++i) {
        float sum = edge[r * kTileColumns + i];
        to[r * stride + i] = accumulate ? to[r * stride + i] + sum : sum;
      }
  }

  /// Adds a bias to finished sums, which are still in the L1 cache.
  void addBias(const float *bias, int64_t row, int64_t rows, int64_t column, int64_t columns) const {
    for (int64_t r = row; r < row + rows; ++r)
      for (int64_t n = column; n < column + columns; n += kWidth) {
        float *to = data + r * stride + n;
        int64_t count = minimum(kWidth, column + columns - n);
        storeFirst<Storage::F32>(to, loadFirst<Storage::F32>(to, count) + loadFirst<Storage::F32>(bias + n, count),
                                 count);
      }
  }
};

/// The products of a task, one block of depth at a time. While tiles compute, they prefetch the panels that are packed
/// next: panels of b up to the next block, panels of a up to the next group.
template <Storage A, Storage B, bool Paired, class Step = StepOf<Paired>> class Products {
public:
  Products(const GemmTask &task, const Blocks &blocks, const Sums &sums)
      : task(task), blocks(blocks), sums(sums), packedB(static_cast<float *>(task.scratch)),
        packedA(packedB + scratchOfB(task, blocks)) {}

  void run() {
    // Packed b begins new blocks at multiples of the depth only.
    bool skipsDepth = task.a.transposed && !task.packed && !task.lines.empty();
    const Span all = {0, task.k};
    isFirst = true;
    for (Span range : skipsDepth ? task.lines : std::span(&all, 1))
      for (k0 = range.begin; k0 < range.end; k0 += blocks.depth) {
        depth = minimum(blocks.depth, range.end - k0);
        isLast = k0 + depth == task.k;
        runBlock();
        isFirst = false;
      }
  }

private:
  /// Adds the products of one block of depth.
  void runBlock() {
    const Span all = {0, task.m};
    isPacked = task.packed != nullptr;
    if (task.a.transposed)
      return runRows<1, kColumnStride>(all);
    for (Span rows : task.lines.empty() ? std::span(&all, 1) : task.lines)
      runRows<kDepth, 1>(rows);
  }

  template <int RowStride, int DepthStride> void runRows(Span rows) {
    for (int64_t m0 = rows.begin; m0 < rows.end; m0 += kPanels * blocks.rows)
      runGroup<RowStride, DepthStride>(m0, minimum(rows.end, m0 + kPanels * blocks.rows));
  }

  /// Adds the products of one group of panels of a, rows [m0, end). The first panel of a block also packs b.
  template <int RowStride, int DepthStride> void runGroup(int64_t m0, int64_t end) {
    int64_t units = Paired ? ceilDivide(depth, 2) : depth;
    bool accumulate = !isFirst || (task.accumulate && blocks.direct);
    // If sums are rounded, roundSums() adds the bias instead.
    const auto *bias = blocks.direct && isLast ? static_cast<const float *>(task.bias) : nullptr;
    packA<A, Paired>(task.a, task.m, m0, end - m0, blocks.rows, k0, depth, packedA);
    nextRow = end;
    const float *a = packedA;
    for (int64_t m = m0; m < end; m += blocks.rows, a += kPanel) {
      int64_t rows = minimum(blocks.rows, end - m);
      Tile tile = tileFor<Step, RowStride, DepthStride>(rows);
      for (int64_t n = 0; n < task.n; n += kTileColumns) {
        int64_t columns = minimum(kTileColumns, task.n - n);
        const float *b = panelOf(n, units);
        if (!isPacked)
          packB<B, Paired>(task.b, k0, depth, n, columns, packedB + n * units);
        sums.run(tile, a, b, units, m, rows, n, columns, accumulate, takeAhead(end, b));
        if (bias)
          sums.addBias(bias, m, rows, n, columns);
      }
      isPacked = true;
    }
  }

  /// Returns the panel of columns [n, n + kTileColumns) of the current block of b.
  const float *panelOf(int64_t n, int64_t units) const {
    return task.packed ? task.packed + n / kTileColumns * blocks.panelFloats(task.k) + blocks.panelFloats(k0)
                       : packedB + n * units;
  }

  /// Returns the panel to prefetch next, if any. It belongs to this block of b, to the group of a that begins at row
  /// `group`, or to the next block of b. A transposed a is not prefetched, because it is already read by whole cache
  /// lines.
  Ahead takeAhead(int64_t group, const float *near) {
    if (task.packed)
      return Ahead(near);
    if (!task.a.transposed && nextDepth > k0 && nextRow < minimum(task.m, group + kPanels * blocks.rows)) {
      int64_t row = nextRow;
      nextRow += blocks.rows;
      return aheadOf<A>(task.a, row, minimum(blocks.rows, task.m - row), k0, depth);
    }
    if (nextColumn >= task.n) {
      nextColumn = 0;
      nextDepth += blocks.depth;
    }
    if (nextDepth > k0 + depth || nextDepth >= task.k)
      return Ahead(near);
    int64_t column = nextColumn;
    nextColumn += kTileColumns;
    return aheadOf<B>(task.b, nextDepth, minimum(blocks.depth, task.k - nextDepth), column,
                      minimum(kTileColumns, task.n - column));
  }

  const GemmTask &task;
  const Blocks &blocks;
  const Sums &sums;
  float *packedB, *packedA;
  int64_t k0 = 0, depth = 0;
  bool isFirst = false, isLast = false;             // block of depth
  bool isPacked = false;                            // the block of b
  int64_t nextDepth = 0, nextColumn = kTileColumns; // next panel of b to prefetch
  int64_t nextRow = 0;                              // next row of a to prefetch
};

/// Packs b in 8 bits.
template <Storage B> void packQuantized(const GemmTask &task, float *to) {
  constexpr float kHalf = 0x1.fffffep-2f; // the largest number below 1/2, so that adding it rounds half away from zero
  auto *bytes = reinterpret_cast<int8_t *>(to);
  for (int64_t n = 0; n < task.n; n += kTileColumns)
    for (int64_t k = 0; k < task.k; k += QuantizedPanel::kRun, bytes += QuantizedPanel::kRunBytes) {
      float block[QuantizedPanel::kRun * kTileColumns] = {};
      packB<B, false>(task.b, k, minimum(QuantizedPanel::kRun, task.k - k), n, minimum(kTileColumns, task.n - n),
                      block);
      for (int64_t half = 0; half < kTileColumns; half += kWidth) {
        Floats most = {}, notFinite = {}; // NaN if a weight is not finite
        for (int64_t i = half; i < QuantizedPanel::kRun * kTileColumns; i += kTileColumns) {
          Floats value = loadFloats(block + i);
          most = maximum(maximum(value, -value), most);
          notFinite += value * 0.0f;
        }
        Floats scale = most / Q8Block::largest;
        Floats inverse = select(scale > 0.0f, 1.0f / scale, Floats{});
        store<Storage::F16>(reinterpret_cast<uint16_t *>(bytes) + half, scale + notFinite);
        int8_t *values = bytes + kTileColumns * sizeof(uint16_t) + half;
        for (int64_t i = 0; i < QuantizedPanel::kRun * kTileColumns; i += kTileColumns) {
          Floats value = loadFloats(block + half + i) * inverse;
          Ints rounded = __builtin_convertvector(value + select(value < 0.0f, splat(-kHalf), splat(kHalf)), Ints);
          Chars chars = __builtin_convertvector(rounded, Chars);
          __builtin_memcpy(values + i, &chars, sizeof chars);
        }
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
      if (task.bias)
        value += loadFirst<S>(static_cast<const Element<S> *>(task.bias) + n, count);
      storeFirst<S>(row + n, value, count);
    }
  }
}

void clearSums(const GemmTask &task, const Sums &sums) {
  for (int64_t m = 0; m < task.m; ++m)
    for (int64_t n = 0; n < task.n; ++n)
      sums.data[m * sums.stride + n] = 0;
}

/// Multiplies without packing; see few_rows.h.
void multiplyFewRows(const GemmTask &task) {
  auto *scratch = static_cast<float *>(task.scratch);
  Blocks blocks(task);
  float *own = scratch + fewRowsFloats(task) + fewRowsSums(task);
  Sums sums = blocks.direct ? Sums{static_cast<float *>(task.c.data), task.c.stride, nullptr}
                            : Sums{own, roundUp(task.n, kTileColumns), nullptr};
  bool isClear = !(blocks.direct && task.accumulate);
  if (isClear)
    clearSums(task, sums);
  if (blocks.paired && !task.b.transposed) {
    addFewRows<Storage::BF16, Storage::BF16, kPairs>(task, blocks.depth, scratch, sums.data, sums.stride, isClear);
  } else {
    withStorage(task.a.storage, [&]<Storage A>() {
      withStorage(task.b.storage, [&]<Storage B>() {
        addFewRows<A, B, false>(task, blocks.depth, scratch, sums.data, sums.stride, isClear);
      });
    });
  }
  if (blocks.direct && task.bias)
    sums.addBias(static_cast<const float *>(task.bias), 0, task.m, 0, task.n);
  if (!blocks.direct)
    withStorage(task.c.storage, [&]<Storage S>() { roundSums<S>(task, sums); });
}

} // namespace

size_t gemmScratchBytes(const GemmTask &task) {
  if (task.isUnpacked) {
    int64_t sums = task.c.storage == Storage::F32 ? 0 : task.m * roundUp(task.n, kTileColumns);
    return static_cast<size_t>(fewRowsFloats(task) + fewRowsSums(task) + sums) * sizeof(float);
  }
  Blocks blocks(task);
  return static_cast<size_t>(scratchOfB(task, blocks) + blocks.aFloats() + blocks.cFloats(task)) * sizeof(float);
}

int64_t packedFloats(const GemmTask &task) {
  Blocks blocks(task);
  return blocks.panelFloats(task.k) * (blocks.width / kTileColumns);
}

void packWeights(const GemmTask &task, float *to) {
  Blocks blocks(task);
  if (blocks.isQuantized)
    return withStorage(task.b.storage, [&]<Storage B>() { packQuantized<B>(task, to); });
  auto pack = [&]<Storage B, bool Paired>() {
    for (int64_t n = 0; n < task.n; n += kTileColumns)
      for (int64_t k0 = 0; k0 < task.k; k0 += blocks.depth) {
        int64_t depth = minimum(blocks.depth, task.k - k0);
        packB<B, Paired>(task.b, k0, depth, n, minimum(kTileColumns, task.n - n), to);
        to += blocks.unitsOf(depth) * kTileColumns;
      }
  };
  if (blocks.paired)
    return pack.template operator()<Storage::BF16, kPairs>();
  withStorage(task.b.storage, [&]<Storage B>() { pack.template operator()<B, false>(); });
}

void gemm(const GemmTask &task) {
  if (task.isUnpacked)
    return multiplyFewRows(task);
  Blocks blocks(task);
  float *own = static_cast<float *>(task.scratch) + scratchOfB(task, blocks) + blocks.aFloats();
  Sums sums =
      blocks.direct ? Sums{static_cast<float *>(task.c.data), task.c.stride, own} : Sums{own, blocks.width, nullptr};
  bool hasZeroRows = !task.lines.empty() && !task.a.transposed;
  if ((task.k == 0 || hasZeroRows) && !(blocks.direct && task.accumulate))
    clearSums(task, sums);
  if (blocks.isQuantized) {
    withStorage(task.a.storage,
                [&]<Storage A>() { Products<A, Storage::F32, false, QuantizedStep>(task, blocks, sums).run(); });
  } else if (blocks.paired) {
    Products<Storage::BF16, Storage::BF16, kPairs>(task, blocks, sums).run();
  } else {
    withStorage(task.a.storage, [&]<Storage A>() {
      withStorage(task.b.storage, [&]<Storage B>() { Products<A, B, false>(task, blocks, sums).run(); });
    });
  }
  if (!blocks.direct)
    withStorage(task.c.storage, [&]<Storage S>() { roundSums<S>(task, sums); });
}

} // namespace espalier::rt::cpu::ESPALIER_LEVEL
