// The register tile of matrix products and attention, and the packing of its operands. A tile holds up to kTileRows x
// kTileColumns sums in registers. Its depth is counted in units: one f32, or a pair of bf16 in the space of one f32, so
// that the same 32-bit moves pack both.
#pragma once

#include "format/q8_block.h"
#include "runtime/kernels/cpu/vector.h"

namespace espalier::rt::cpu::ESPALIER_LEVEL {

constexpr int kTileColumns = 2 * kWidth;
/// Units of depth between rows of a packed left operand, which is the deepest block. 24 cache lines, so that the rows
/// of a tile map to different sets of the L1 cache.
constexpr int kDepth = 384;
/// Distance between units of depth when the left operand is packed column by column.
constexpr int kColumnStride = 16;

/// Reads a packed panel of b, one unit of depth after the other.
struct PlainPanel {
  static constexpr int64_t kRun = kDepth; // units between calls of begin()
  const float *b;

  ESPALIER_INLINE void begin(PlainPanel &) {}
  ESPALIER_INLINE void read(PlainPanel &panel, Floats &left, Floats &right) {
    left = loadFloats(panel.b);
    right = loadFloats(panel.b + kWidth);
    panel.b += kTileColumns;
  }
};

/// Reads a packed panel in 8 bits: for each 32 units of depth the scales of the columns in f16, then the units.
struct QuantizedPanel {
  static constexpr int64_t kRun = Q8Block::weights;
  static constexpr int64_t kRunBytes = sizeof(Q8Block) * kTileColumns;
  const float *b;
  Floats scales[2] = {};

  ESPALIER_INLINE void begin(QuantizedPanel &panel) {
    const auto *bits = reinterpret_cast<const uint16_t *>(panel.b);
    panel.scales[0] = load<Storage::F16>(bits);
    panel.scales[1] = load<Storage::F16>(bits + kWidth);
    panel.b = reinterpret_cast<const float *>(bits + kTileColumns);
  }
  ESPALIER_INLINE void read(QuantizedPanel &panel, Floats &left, Floats &right) {
    const auto *values = reinterpret_cast<const int8_t *>(panel.b);
    left = floats(values) * panel.scales[0];
    right = floats(values + kWidth) * panel.scales[1];
    panel.b = reinterpret_cast<const float *>(values + kTileColumns);
  }

private:
  ESPALIER_INLINE Floats floats(const int8_t *values) {
    Chars bytes;
    __builtin_memcpy(&bytes, values, sizeof bytes);
    return __builtin_convertvector(__builtin_convertvector(bytes, Ints), Floats);
  }
};

/// One multiply-add on all lanes.
struct FloatStep {
  using Panel = PlainPanel;
  ESPALIER_INLINE Floats add(Floats sum, Floats a, Floats b) { return a * b + sum; }
};

#if defined(__AVX512BF16__)
constexpr bool kPairs = true;
typedef __bf16 Pairs __attribute__((vector_size(64)));
/// Two multiply-adds on each lane, of bf16 pairs.
struct PairStep {
  using Panel = PlainPanel;
  ESPALIER_INLINE Floats add(Floats sum, Floats a, Floats b) {
    return __builtin_ia32_dpbf16ps_512(sum, __builtin_bit_cast(Pairs, a), __builtin_bit_cast(Pairs, b));
  }
};
#else
constexpr bool kPairs = false;
typedef FloatStep PairStep;
#endif

/// One multiply-add on all lanes, of b in 8 bits.
struct QuantizedStep : FloatStep {
  using Panel = QuantizedPanel;
};

/// The rows of memory that a tile prefetches into the L2 cache while it computes: two cache lines per unit of depth,
/// because more at a time would stall.
struct Ahead {
  static constexpr int64_t kPair = 128; // bytes
  const char *line;
  int64_t left = 1, run = 1; // pairs left in this row; pairs in a whole row
  int64_t skip = -kPair;     // bytes from the end of a row to the next
  const char *last;          // last pair; prefetching stays there

  /// Prefetches nothing new: `near` is in the L1 cache.
  explicit Ahead(const void *near) : line(static_cast<const char *>(near)), last(static_cast<const char *>(near)) {}
  Ahead(const void *first, int64_t rows, int64_t stride, int64_t bytes) : Ahead(first) {
    left = run = ceilDivide(bytes, kPair);
    skip = stride - run * kPair;
    last += (rows - 1) * stride + (run - 1) * kPair;
  }

  ESPALIER_INLINE void fetch(Ahead &ahead) {
    __builtin_prefetch(ahead.line, /*rw=*/0, /*locality=*/2);
    __builtin_prefetch(ahead.line + kPair / 2, /*rw=*/0, /*locality=*/2);
    bool isEnd = --ahead.left == 0;
    const char *next = ahead.line + kPair + (isEnd ? ahead.skip : 0);
    ahead.left = isEnd ? ahead.run : ahead.left;
    ahead.line = next < ahead.last ? next : ahead.last;
  }
};

/// Computes c[r, 0..kTileColumns) = or += sum over d of a(r, d) b[d, :]. a(r, d) is a[r * RowStride + d * DepthStride];
/// b is a packed panel of the step's form. `prefetched` is a reference, because a copy on the stack reads with vectors
/// what was just written field by field, and such a load waits until the stores of the tile before are done.
template <int Rows, class Step, int RowStride, int DepthStride>
static void tile(const float *a, const float *b, int64_t depth, float *c, int64_t stride, bool accumulate,
                 const Ahead &prefetched) {
  Ahead ahead = prefetched;
  Floats sums[Rows][2] = {};
  using Panel = typename Step::Panel;
  Panel panel{b};
  for (int64_t d = 0; d < depth;) {
    Panel::begin(panel);
    for (int64_t end = minimum(depth, d + Panel::kRun); d < end; ++d) {
      Ahead::fetch(ahead);
      Floats left, right;
      Panel::read(panel, left, right);
#pragma clang loop unroll(full)
      for (int r = 0; r < Rows; ++r) {
        Floats factor = splat(a[r * RowStride]);
        sums[r][0] = Step::add(sums[r][0], factor, left);
        sums[r][1] = Step::add(sums[r][1], factor, right);
      }
      a += DepthStride;
    }
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < Rows; ++r) {
    float *row = c + r * stride;
    if (accumulate) {
      sums[r][0] += loadFloats(row);
      sums[r][1] += loadFloats(row + kWidth);
    }
    storeFloats(row, sums[r][0]);
    storeFloats(row + kWidth, sums[r][1]);
  }
}

typedef void (*Tile)(const float *, const float *, int64_t, float *, int64_t, bool, const Ahead &);

template <class Step, int RowStride, int DepthStride, int... Rows> struct TileTable {
  static constexpr Tile tiles[] = {nullptr, tile<Rows, Step, RowStride, DepthStride>...};
};

/// Returns the tile for `rows` rows, 1 to kTileRows.
template <class Step, int RowStride, int DepthStride> ESPALIER_INLINE Tile tileFor(int64_t rows) {
  if constexpr (kTileRows == 14)
    return TileTable<Step, RowStride, DepthStride, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14>::tiles[rows];
  else
    return TileTable<Step, RowStride, DepthStride, 1, 2, 3, 4, 5, 6>::tiles[rows];
}

/// Reads vectors of units from a stored matrix of elements S.
template <Storage S, bool Paired> struct Reader {
  static constexpr int kElements = Paired ? 2 : 1; // per unit

  /// Reads units that are contiguous in memory: `count` elements, then zeros.
  ESPALIER_INLINE Floats along(const Element<S> *p, int64_t count) {
    if constexpr (!Paired) {
      return loadFirst<S>(p, count);
    } else {
      uint16_t lanes[2 * kWidth] = {};
      if (count < 2 * kWidth) {
        copyFirst<2 * kWidth>(lanes, p, count);
        p = lanes;
      }
      Floats v;
      __builtin_memcpy(&v, p, sizeof v);
      return v;
    }
  }

  /// Reads one unit of each of `count` columns. A pair takes its second element from the next row, or 0 if there is
  /// none.
  ESPALIER_INLINE Floats across(const Element<S> *p, int64_t stride, int64_t count, bool second) {
    if constexpr (!Paired) {
      return loadFirst<S>(p, count);
    } else {
      Words low = shortsAt(p, count);
      Words high = second ? shortsAt(p + stride, count) : Words{};
      return floatsOf(low | (high << 16));
    }
  }

private:
  ESPALIER_INLINE Words shortsAt(const uint16_t *p, int64_t count) {
    uint16_t lanes[kWidth] = {};
    if (count < kWidth) {
      copyFirst<kWidth>(lanes, p, count);
      p = lanes;
    }
    Shorts bits;
    __builtin_memcpy(&bits, p, sizeof bits);
    return __builtin_convertvector(bits, Words);
  }
};

/// Packs rows of a matrix with contiguous depth to out[r * kDepth + unit], zero-filled to whole vectors.
template <Storage S, bool Paired>
static void packRows(const Element<S> *from, int64_t stride, int64_t rows, int64_t elements, float *out) {
  constexpr int kStep = kWidth * Reader<S, Paired>::kElements;
  for (int64_t r = 0; r < rows; ++r, from += stride, out += kDepth)
    for (int64_t e = 0; e < elements; e += kStep)
      storeFloats(out + e / Reader<S, Paired>::kElements, Reader<S, Paired>::along(from + e, elements - e));
}

/// Packs panels of kTileColumns columns of a matrix stored [depth, columns] to out[panel][unit][kTileColumns], with
/// zeros after the last column.
template <Storage S, bool Paired>
static void packPanels(const Element<S> *from, int64_t stride, int64_t elements, int64_t columns, float *out) {
  constexpr int kElements = Reader<S, Paired>::kElements;
  int64_t units = ceilDivide(elements, kElements);
  for (int64_t unit = 0; unit < units; ++unit, from += kElements * stride) {
    bool second = unit * kElements + 1 < elements;
    for (int64_t n = 0; n < columns; n += kTileColumns) {
      float *to = out + n * units + unit * kTileColumns;
      int64_t rest = columns - n;
      storeFloats(to, Reader<S, Paired>::across(from + n, stride, rest, second));
      storeFloats(to + kWidth, rest > kWidth
                                   ? Reader<S, Paired>::across(from + n + kWidth, stride, rest - kWidth, second)
                                   : Floats{});
    }
  }
}

template <int Distance, int... L> ESPALIER_INLINE void swapLanes(Floats &low, Floats &high, LaneList<L...>) {
  Floats a = low, b = high;
  low = __builtin_shufflevector(a, b, (L & Distance ? L - Distance + kWidth : L)...);
  high = __builtin_shufflevector(a, b, (L & Distance ? L + kWidth : L + Distance)...);
}

/// Transposes kWidth vectors. Each step swaps blocks of `Distance` lanes between vectors `Distance` apart.
template <int Distance> ESPALIER_INLINE void swapBlocks(Floats *v) {
#pragma clang loop unroll(full)
  for (int i = 0; i < kWidth; ++i)
    if (!(i & Distance))
      swapLanes<Distance>(v[i], v[i + Distance], AllLanes{});
}
ESPALIER_INLINE void transpose(Floats *v) {
  if constexpr (kWidth >= 16)
    swapBlocks<8>(v);
  if constexpr (kWidth >= 8)
    swapBlocks<4>(v);
  swapBlocks<2>(v);
  swapBlocks<1>(v);
}

/// Packs like packPanels, from a matrix stored [columns, depth].
template <Storage S, bool Paired>
static void packTransposedPanels(const Element<S> *from, int64_t stride, int64_t elements, int64_t columns,
                                 float *out) {
  constexpr int kElements = Reader<S, Paired>::kElements;
  int64_t units = ceilDivide(elements, kElements);
  for (int64_t n = 0; n < columns; n += kWidth) {
    float *panel = out + n / kTileColumns * kTileColumns * units + n % kTileColumns;
    int64_t lanes = minimum(kWidth, columns - n);
    for (int64_t unit = 0; unit < units; unit += kWidth) {
      Floats block[kWidth];
      for (int64_t i = 0; i < kWidth; ++i)
        block[i] = i < lanes ? Reader<S, Paired>::along(from + (n + i) * stride + unit * kElements,
                                                        elements - unit * kElements)
                             : Floats{};
      transpose(block);
      int64_t count = minimum(kWidth, units - unit);
      for (int64_t i = 0; i < count; ++i)
        storeFloats(panel + (unit + i) * kTileColumns, block[i]);
    }
  }
  if (columns % kTileColumns == 0 || columns % kTileColumns > kWidth)
    return;
  float *panel = out + columns / kTileColumns * kTileColumns * units + kWidth; // the last panel's second half
  for (int64_t unit = 0; unit < units; ++unit)
    storeFloats(panel + unit * kTileColumns, Floats{});
}

} // namespace espalier::rt::cpu::ESPALIER_LEVEL
