// Attention without a stored score matrix. The softmax is computed online over blocks of keys with a running maximum
// and sum (Dao et al., "FlashAttention", 2022). Keys are the outer loop, so each block is packed once per task.
#include "runtime/kernels/cpu/attention.h"
#include "runtime/kernels/cpu/loops.h"

namespace espalier::rt::cpu::ESPALIER_LEVEL {

namespace {

constexpr int64_t kQueryBlock = 4 * kTileRows;

/// Scratch of one task. Rows are (head of the group, query); the query index is the fastest.
struct Forward {
  float *keys;    // packed k^T of one block
  float *values;  // packed v of one block
  float *queries; // packed rows of one query block
  float *scores;  // [kQueryBlock, kDepth], then probabilities
  float *factors; // dropout factors of one row
  float *sums;    // [rows, padded columns of v]: sum of p v
  float *largest; // [rows]: running maximum of the scaled scores
  float *total;   // [rows]: running sum of exp(score - maximum)
  size_t bytes;

  Forward(const AttentionShape &shape, int64_t queries_, void *scratch) {
    Carver carver(scratch);
    int64_t padded = roundUp(shape.valueDim, kTileColumns), rows = queries_ * shape.group;
    keys = carver.take(kKeyBlock * shape.headDim);
    values = carver.take(kKeyBlock * padded);
    queries = carver.take(kQueryBlock * kDepth);
    scores = carver.take(kQueryBlock * kDepth);
    factors = carver.take(kKeyBlock);
    sums = carver.take(rows * padded);
    largest = carver.take(rows);
    total = carver.take(rows);
    bytes = carver.bytes();
  }
};

/// Turns one row of scores into probabilities relative to the new maximum and rescales the earlier sums. Sets scores
/// [visible, padded) to 0.
void softmaxRow(float *scores, int64_t visible, int64_t padded, float scale, const float *factors, float &largest,
                float &total, float *sums, int64_t width) {
  int64_t whole = visible / kWidth * kWidth;
  Ints tail = lanesBelow(visible - whole);
  Floats top = splat(-__builtin_inff());
  for (int64_t i = 0; i < whole; i += kWidth)
    top = maximum(loadFloats(scores + i), top);
  if (whole < visible)
    top = maximum(select(tail, loadFloats(scores + whole), top), top);
  Floats before = splat(largest);
  Floats now = maximum(maxOf(top) * scale, before);
  Floats sum{};
  for (int64_t i = 0; i < whole; i += kWidth) {
    Floats p = exponential(loadFloats(scores + i) * scale - now);
    sum += p;
    storeFloats(scores + i, factors ? p * loadFloats(factors + i) : p);
  }
  for (int64_t i = whole; i < padded; i += kWidth, tail = Ints{}) {
    Floats p = select(tail, exponential(loadFloats(scores + i) * scale - now), Floats{});
    sum += p;
    storeFloats(scores + i, factors ? p * loadFloats(factors + i) : p);
  }
  Floats shrink = exponential(before - now);
  largest = now[0];
  total = total * shrink[0] + sumOf(sum)[0];
  for (int64_t i = 0; i < width; i += kWidth)
    storeFloats(sums + i, loadFloats(sums + i) * shrink);
}

/// Limits the scores of one row by the cap; afterwards they are scaled. Hides the first `hidden` ones.
void limitRow(const AttentionShape &shape, float *scores, int64_t hidden, int64_t padded) {
  if (shape.softCap > 0)
    for (int64_t i = 0; i < padded; i += kWidth)
      storeFloats(scores + i,
                  hyperbolicTangent(loadFloats(scores + i) * (shape.scale / shape.softCap)) * shape.softCap);
  for (int64_t i = 0; i < hidden; ++i)
    scores[i] = -__builtin_inff();
}

/// Processes one block of queries of one head against the packed block of keys.
template <Storage S>
void attendBlock(const AttentionForwardTask &task, const Layouts &layouts, const Forward &scratch, int64_t head,
                 int64_t query, int64_t rows, int64_t firstKey, int64_t keys) {
  const AttentionShape &shape = *task.shape;
  int64_t visible = visibleKeys(shape.causal, positionOf(task, query + rows - 1), firstKey, keys);
  const Layout &layout = layouts.scores, &values = layouts.values;
  int64_t units = unitsOf<S>(layout.columns), padded = roundUp(visible, kTileColumns);
  packRows<S, kPaired<S>>(static_cast<const Element<S> *>(task.q) + layout.queryAt(query, head), layout.queryStride,
                          rows, layout.columns, scratch.queries);
  multiplyPanels<StoredStep<S>, kDepth, 1>(scratch.queries, rows, scratch.keys, units, units, visible, scratch.scores,
                                           kDepth, /*accumulate=*/false);
  int64_t row = head * (task.endQuery - task.firstQuery) + query - task.firstQuery;
  float *sums = scratch.sums + row * values.padded;
  for (int64_t r = 0; r < rows; ++r) {
    int64_t position = positionOf(task, query + r), seen = visibleKeys(shape.causal, position, firstKey, keys);
    float *scores = scratch.scores + r * kDepth;
    int64_t hidden = hiddenKeys(task, query + r, firstKey, keys);
    if (seen <= hidden) { // all keys are masked
      for (int64_t i = 0; i < padded; ++i)
        scores[i] = 0;
      continue;
    }
    if (task.dropout.threshold)
      fillDropout(task.dropout, task.sample, task.kvHead * shape.group + head, position, firstKey, padded,
                  scratch.factors);
    limitRow(shape, scores, hidden, padded);
    softmaxRow(scores, seen, padded, shape.softCap > 0 ? 1 : shape.scale,
               task.dropout.threshold ? scratch.factors : nullptr, scratch.largest[row + r], scratch.total[row + r],
               sums + r * values.padded, values.padded);
  }
  multiplyPanels<FloatStep, kDepth, 1>(scratch.scores, rows, scratch.values, visible, keys, values.columns, sums,
                                       values.padded, /*accumulate=*/true);
}

/// Computes out, which has `layout`, = sums / total, lse = maximum + log total. Stores the largest score if it is
/// wanted.
template <Storage S> void finishRows(const AttentionForwardTask &task, const Layout &layout, const Forward &scratch) {
  const AttentionShape &shape = *task.shape;
  int64_t queries = task.endQuery - task.firstQuery;
  for (int64_t head = 0; head < shape.group; ++head)
    for (int64_t query = 0; query < queries; ++query) {
      int64_t row = head * queries + query, at = task.firstQuery + query;
      float inverse = 1.0f / scratch.total[row];
      Element<S> *out = static_cast<Element<S> *>(task.out) + layout.queryAt(at, head);
      for (int64_t i = 0; i < layout.columns; i += kWidth)
        storeFirst<S>(out + i, loadFloats(scratch.sums + row * layout.padded + i) * inverse, layout.columns - i);
      int64_t heads = shape.kvHeads * shape.group;
      task.lse[(task.sample * shape.sequence + at) * heads + task.kvHead * shape.group + head] =
          scratch.largest[row] + __builtin_logf(scratch.total[row]);
    }
  if (!task.largest)
    return;
  *task.largest = -__builtin_inff();
  for (int64_t row = 0; row < queries * shape.group; ++row)
    if (scratch.largest[row] > *task.largest)
      *task.largest = scratch.largest[row];
}

template <Storage S> void forward(const AttentionForwardTask &task) {
  const AttentionShape &shape = *task.shape;
  Layouts layouts(shape, task.sample, task.kvHead);
  const Layout &ofKeys = layouts.scores, &ofValues = layouts.values;
  int64_t queries = task.endQuery - task.firstQuery, rows = queries * shape.group;
  Forward scratch(shape, queries, task.scratch);
  __builtin_memset(scratch.sums, 0, static_cast<size_t>(rows * ofValues.padded) * sizeof(float));
  for (int64_t row = 0; row < rows; ++row) {
    scratch.largest[row] = -__builtin_inff();
    scratch.total[row] = 0;
  }
  const Element<S> *k = static_cast<const Element<S> *>(task.k), *v = static_cast<const Element<S> *>(task.v);
  int64_t endKey = shape.causal ? minimum(shape.keys, positionOf(task, task.endQuery - 1) + 1) : shape.keys;
  int64_t seenFirst = hiddenKeys(task, task.firstQuery, 0, endKey);
  for (int64_t firstKey = seenFirst / kKeyBlock * kKeyBlock; firstKey < endKey; firstKey += kKeyBlock) {
    int64_t keys = minimum(kKeyBlock, endKey - firstKey);
    packTransposedPanels<S, kPaired<S>>(k + ofKeys.keyAt(firstKey), ofKeys.keyStride, ofKeys.columns, keys,
                                        scratch.keys);
    packPanels<S, false>(v + ofValues.keyAt(firstKey), ofValues.keyStride, keys, ofValues.columns, scratch.values);
    for (int64_t head = 0; head < shape.group; ++head)
      for (int64_t query = task.firstQuery; query < task.endQuery; query += kQueryBlock) {
        int64_t count = minimum(kQueryBlock, task.endQuery - query);
        bool isHidden = hiddenKeys(task, query, firstKey, keys) == keys;
        if (!shape.causal || (positionOf(task, query + count - 1) >= firstKey && !isHidden))
          attendBlock<S>(task, layouts, scratch, head, query, count, firstKey, keys);
      }
  }
  finishRows<S>(task, ofValues, scratch);
}

} // namespace

size_t attentionForwardScratchBytes(const AttentionShape &shape, int64_t queries) {
  return Forward(shape, queries, nullptr).bytes;
}

void attentionForward(const AttentionForwardTask &task) {
  withStorage(task.shape->storage, [&]<Storage S>() { forward<S>(task); });
}

} // namespace espalier::rt::cpu::ESPALIER_LEVEL
