// Code shared by the forward and backward loops of attention: addresses, packed products, dropout.
#pragma once

#include "format/abi.h"
#include "runtime/kernels/cpu/gemm_tile.h"
#include "runtime/kernels/cpu/level.h"

#include <type_traits>

namespace espalier::rt::cpu::ESPALIER_LEVEL {

constexpr int64_t kKeyBlock = 128; // keys per step; packed keys and values stay in the L2 cache

/// Whether products of stored values use bf16 pairs: exact products, f32 sums, twice the rate.
template <Storage S> constexpr bool kPaired = kPairs && S == Storage::BF16;
template <Storage S> using StoredStep = std::conditional_t<kPaired<S>, PairStep, FloatStep>;
template <Storage S> ESPALIER_INLINE int64_t unitsOf(int64_t elements) {
  return kPaired<S> ? ceilDivide(elements, 2) : elements;
}

/// Offsets in elements of a tensor of queries and of a tensor of keys whose rows have `columns` elements. Query
/// positions count from the first query in q.
struct Layout {
  int64_t queryStride, keyStride; // between consecutive positions
  int64_t query, key;             // position 0 of the group's first head
  int64_t columns, padded;        // `padded` is rounded up to whole tiles

  Layout(const AttentionShape &shape, int64_t columns, int64_t sample, int64_t kvHead)
      : queryStride(shape.kvHeads * shape.group * columns), keyStride(shape.kvHeads * columns),
        query(sample * shape.sequence * queryStride + kvHead * shape.group * columns),
        key(sample * shape.keys * keyStride + kvHead * columns), columns(columns),
        padded(roundUp(columns, kTileColumns)) {}
  int64_t queryAt(int64_t position, int64_t head) const { return query + position * queryStride + head * columns; }
  int64_t keyAt(int64_t position) const { return key + position * keyStride; }
};

/// The layouts of q and k, and of out and v.
struct Layouts {
  Layout scores, values;
  Layouts(const AttentionShape &shape, int64_t sample, int64_t kvHead)
      : scores(shape, shape.headDim, sample, kvHead), values(shape, shape.valueDim, sample, kvHead) {}
};

/// Computes c [rows, columns] = or += a b. b is packed in panels of `panelUnits` units, of which the first `units` are
/// used. c has room for whole tiles of columns.
template <class Step, int RowStride, int DepthStride>
static void multiplyPanels(const float *a, int64_t rows, const float *b, int64_t units, int64_t panelUnits,
                           int64_t columns, float *c, int64_t stride, bool accumulate) {
  int64_t height = ceilDivide(rows, ceilDivide(rows, kTileRows));
  for (int64_t r = 0; r < rows; r += height) {
    int64_t count = minimum(height, rows - r);
    Tile tile = tileFor<Step, RowStride, DepthStride>(count);
    for (int64_t n = 0; n < columns; n += kTileColumns)
      tile(a + r * RowStride, b + n * panelUnits, units, c + r * stride + n, stride, accumulate, Ahead(b));
  }
}

/// Computes the dropout factors, 0 or `dropout.scale`, of the probabilities of the query at `position` and keys
/// [firstKey, firstKey + count).
static inline void fillDropout(const AttentionDropout &dropout, int64_t sample, int64_t head, int64_t position,
                               int64_t firstKey, int64_t count, float *out) {
  int64_t T = dropout.unsplitSequence;
  uint64_t first = static_cast<uint64_t>(((dropout.firstHead + head) * T + position) * T + firstKey);
  uint32_t globalSample = dropout.firstSample + static_cast<uint32_t>(sample);
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits =
        randomBits(dropout.seed, dropout.step, dropout.stream, globalSample, first + static_cast<uint64_t>(i));
    out[i] = bits >= dropout.threshold ? dropout.scale : 0.0f;
  }
}

/// Returns 1 in the lanes below `count`, which may be negative or above the width.
ESPALIER_INLINE Ints lanesBelow(int64_t count) {
  Ints lane;
  for (int i = 0; i < kWidth; ++i)
    lane[i] = i;
  int32_t limit = static_cast<int32_t>(count < 0 ? 0 : minimum(count, kWidth));
  return lane < limit;
}

/// Returns how many keys of [firstKey, firstKey + keys) the query at `position` attends to.
ESPALIER_INLINE int64_t visibleKeys(bool causal, int64_t position, int64_t firstKey, int64_t keys) {
  return causal ? minimum(keys, position - firstKey + 1) : keys;
}

/// Returns the position of `query` of a task. Positions increase with queries.
template <typename Task> ESPALIER_INLINE int64_t positionOf(const Task &task, int64_t query) {
  const AttentionShape &shape = *task.shape;
  bool isOfSecondRun = shape.zigzag && query >= shape.sequence / 2;
  return query + (isOfSecondRun ? shape.keys - shape.sequence - task.firstPosition : task.firstPosition);
}

/// Returns the first key that `query` of a task may attend to: the begin of its window or of its document.
template <typename Task> ESPALIER_INLINE int64_t firstVisible(const Task &task, int64_t query) {
  const AttentionShape &shape = *task.shape;
  int64_t position = positionOf(task, query), first = shape.window > 0 ? position + 1 - shape.window : 0;
  if (task.visibleFrom) {
    int64_t begin = minimum(task.visibleFrom[query], minimum(position, shape.keys - 1));
    first = begin > first ? begin : first;
  }
  return first < 0 ? 0 : first;
}

/// Returns how many of the first keys of [firstKey, firstKey + keys) lie before the first visible key of `query`.
template <typename Task>
ESPALIER_INLINE int64_t hiddenKeys(const Task &task, int64_t query, int64_t firstKey, int64_t keys) {
  int64_t before = firstVisible(task, query) - firstKey;
  return before < 0 ? 0 : minimum(keys, before);
}

/// Splits scratch memory into arrays aligned to cache lines.
class Carver {
public:
  explicit Carver(void *base) : base_(static_cast<float *>(base)) {}
  float *take(int64_t floats) {
    float *piece = base_ ? base_ + used_ : nullptr;
    used_ += roundUp(floats, 16);
    return piece;
  }
  size_t bytes() const { return static_cast<size_t>(used_) * sizeof(float); }

private:
  float *base_;
  int64_t used_ = 0;
};

} // namespace espalier::rt::cpu::ESPALIER_LEVEL
