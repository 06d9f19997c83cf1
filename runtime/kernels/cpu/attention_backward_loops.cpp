// The gradient of attention from q, k, v, out and the log of the softmax sums. Probabilities are recomputed block by
// block (Dao, "FlashAttention-2", 2023). One task owns a kv head, so dk and dv are summed over its group in a fixed
// order. With p the probabilities, r the dropout factors and D = sum(dout * out) per row:
//   dv = (p r)^T dout,  ds = scale * p * (r * dout v^T - D),  dq = ds k,  dk = ds^T q.
// A soft cap multiplies ds by the derivative of the capped score.
#include "runtime/kernels/cpu/attention.h"
#include "runtime/kernels/cpu/loops.h"

namespace espalier::rt::cpu::ESPALIER_LEVEL {

namespace {

constexpr int64_t kQueryBlock = 8 * kTileRows;

struct Backward {
  float *keysAcross, *valuesAcross; // packed k^T and v^T of one block of keys
  float *keys;                      // packed k of the block
  float *queryRows, *doutRows;      // one block of queries as left operands
  float *queries, *dout;            // the same as right operands
  float *scores, *slopes;           // [kQueryBlock, kDepth]: p r and ds
  float *factors;                   // dropout factors of one row
  float *dk, *dv;                   // [kKeyBlock, padded columns of k or v]
  float *dq;                        // [group, sequence, padded columns of k]
  float *products;                  // [group, sequence]: D
  size_t bytes;

  Backward(const AttentionShape &shape, void *scratch) {
    Carver carver(scratch);
    int64_t padded = roundUp(shape.headDim, kTileColumns), paddedValues = roundUp(shape.valueDim, kTileColumns),
            rows = shape.group * shape.sequence;
    keysAcross = carver.take(kKeyBlock * shape.headDim);
    valuesAcross = carver.take(kKeyBlock * shape.valueDim);
    keys = carver.take(kKeyBlock * padded);
    queryRows = carver.take(kQueryBlock * kDepth);
    doutRows = carver.take(kQueryBlock * kDepth);
    queries = carver.take(kQueryBlock * padded);
    dout = carver.take(kQueryBlock * paddedValues);
    scores = carver.take(kQueryBlock * kDepth);
    slopes = carver.take(kQueryBlock * kDepth);
    factors = carver.take(kKeyBlock);
    dk = carver.take(kKeyBlock * padded);
    dv = carver.take(kKeyBlock * paddedValues);
    dq = carver.take(rows * padded);
    products = carver.take(rows);
    bytes = carver.bytes();
  }
};

template <Storage S> struct Operands {
  const Element<S> *q, *k, *v, *out, *dout;
  explicit Operands(const AttentionBackwardTask &task)
      : q(static_cast<const Element<S> *>(task.q)), k(static_cast<const Element<S> *>(task.k)),
        v(static_cast<const Element<S> *>(task.v)), out(static_cast<const Element<S> *>(task.out)),
        dout(static_cast<const Element<S> *>(task.dout)) {}
};

/// Computes D of every row of out, which has `layout`.
template <Storage S>
void sumProducts(const AttentionShape &shape, const Layout &layout, const Operands<S> &from, float *products) {
  for (int64_t head = 0; head < shape.group; ++head)
    for (int64_t query = 0; query < shape.sequence; ++query) {
      int64_t at = layout.queryAt(query, head);
      Floats sum{};
      for (int64_t i = 0; i < layout.columns; i += kWidth)
        sum +=
            loadFirst<S>(from.out + at + i, layout.columns - i) * loadFirst<S>(from.dout + at + i, layout.columns - i);
      products[head * shape.sequence + query] = sumOf(sum)[0];
    }
}

/// Replaces scores q k by p r, and slopes dout v by ds.
template <bool IsCapped>
ESPALIER_INLINE void differentiate(const AttentionShape &shape, float *scores, float *slopes, Ints seen, float lse,
                                   float product, const float *factors) {
  Floats score = loadFloats(scores), derivative = splat(shape.scale);
  if constexpr (IsCapped) {
    Floats tangent = hyperbolicTangent(score * (shape.scale / shape.softCap));
    score = tangent * shape.softCap;
    derivative = (1.0f - tangent * tangent) * shape.scale;
  } else {
    score *= shape.scale;
  }
  Floats p = select(seen, exponential(score - lse), Floats{});
  Floats slope = loadFloats(slopes);
  Floats kept = p;
  if (factors) {
    Floats factor = loadFloats(factors);
    slope *= factor;
    kept *= factor;
  }
  storeFloats(scores, kept);
  storeFloats(slopes, select(seen, p * (slope - product) * derivative, Floats{}));
}

/// Differentiates one row, of which the query attends to [hidden, visible); other keys give zeros.
template <bool IsCapped>
void differentiateRow(const AttentionShape &shape, float *scores, float *slopes, int64_t hidden, int64_t visible,
                      int64_t padded, float lse, float product, const float *factors) {
  int64_t i = 0;
  for (; i < hidden; i += kWidth)
    differentiate<IsCapped>(shape, scores + i, slopes + i, lanesBelow(visible - i) & ~lanesBelow(hidden - i), lse,
                            product, factors ? factors + i : nullptr);
  for (; i + kWidth <= visible; i += kWidth)
    differentiate<IsCapped>(shape, scores + i, slopes + i, ~Ints{}, lse, product, factors ? factors + i : nullptr);
  for (; i < padded; i += kWidth)
    differentiate<IsCapped>(shape, scores + i, slopes + i, lanesBelow(visible - i), lse, product,
                            factors ? factors + i : nullptr);
}

template <Storage S>
void packQueries(const Element<S> *from, const Layout &layout, int64_t rows, float *asRows, float *asPanels) {
  packRows<S, kPaired<S>>(from, layout.queryStride, rows, layout.columns, asRows);
  packPanels<S, false>(from, layout.queryStride, rows, layout.columns, asPanels);
}

/// Differentiates one block of queries of one head against the packed block of keys.
template <Storage S>
void differentiateBlock(const AttentionBackwardTask &task, const Layouts &layouts, const Backward &scratch,
                        int64_t head, int64_t query, int64_t rows, int64_t firstKey, int64_t keys) {
  const AttentionShape &shape = *task.shape;
  int64_t visible = visibleKeys(shape.causal, positionOf(task, query + rows - 1), firstKey, keys);
  const Layout &layout = layouts.scores, &values = layouts.values;
  int64_t units = unitsOf<S>(layout.columns), valueUnits = unitsOf<S>(values.columns);
  int64_t padded = roundUp(visible, kTileColumns);
  Operands<S> from(task);
  packQueries<S>(from.q + layout.queryAt(query, head), layout, rows, scratch.queryRows, scratch.queries);
  packQueries<S>(from.dout + values.queryAt(query, head), values, rows, scratch.doutRows, scratch.dout);
  multiplyPanels<StoredStep<S>, kDepth, 1>(scratch.queryRows, rows, scratch.keysAcross, units, units, visible,
                                           scratch.scores, kDepth,
                                           /*accumulate=*/false);
  multiplyPanels<StoredStep<S>, kDepth, 1>(scratch.doutRows, rows, scratch.valuesAcross, valueUnits, valueUnits,
                                           visible, scratch.slopes, kDepth,
                                           /*accumulate=*/false);
  int64_t heads = shape.kvHeads * shape.group, globalHead = task.kvHead * shape.group + head;
  const float *factors = task.dropout.threshold ? scratch.factors : nullptr;
  for (int64_t r = 0; r < rows; ++r) {
    int64_t position = positionOf(task, query + r);
    if (factors)
      fillDropout(task.dropout, task.sample, globalHead, position, firstKey, padded, scratch.factors);
    auto differentiateOne = shape.softCap > 0 ? differentiateRow<true> : differentiateRow<false>;
    differentiateOne(shape, scratch.scores + r * kDepth, scratch.slopes + r * kDepth,
                     hiddenKeys(task, query + r, firstKey, keys), visibleKeys(shape.causal, position, firstKey, keys),
                     padded, task.lse[(task.sample * shape.sequence + query + r) * heads + globalHead],
                     scratch.products[head * shape.sequence + query + r], factors);
  }
  multiplyPanels<FloatStep, 1, kDepth>(scratch.scores, visible, scratch.dout, rows, rows, values.columns, scratch.dv,
                                       values.padded,
                                       /*accumulate=*/true);
  multiplyPanels<FloatStep, 1, kDepth>(scratch.slopes, visible, scratch.queries, rows, rows, layout.columns, scratch.dk,
                                       layout.padded,
                                       /*accumulate=*/true);
  multiplyPanels<FloatStep, kDepth, 1>(scratch.slopes, rows, scratch.keys, visible, keys, layout.columns,
                                       scratch.dq + (head * shape.sequence + query) * layout.padded, layout.padded,
                                       /*accumulate=*/true);
}

/// Stores rows that are `stride` apart.
template <Storage S>
void storeRows(const float *from, const Layout &layout, int64_t rows, Element<S> *to, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < layout.columns; i += kWidth)
      storeFirst<S>(to + r * stride + i, loadFloats(from + r * layout.padded + i), layout.columns - i);
}

/// Returns the number of queries at positions before `key`.
int64_t queriesBefore(const AttentionBackwardTask &task, int64_t key) {
  const AttentionShape &shape = *task.shape;
  int64_t run = shape.zigzag ? shape.sequence / 2 : shape.sequence;
  auto before = [&](int64_t firstPosition) { return key > firstPosition ? minimum(run, key - firstPosition) : 0; };
  return before(task.firstPosition) + (shape.zigzag ? before(shape.keys - run - task.firstPosition) : 0);
}

void clear(float *data, int64_t floats) { __builtin_memset(data, 0, static_cast<size_t>(floats) * sizeof(float)); }

template <Storage S> void backward(const AttentionBackwardTask &task) {
  const AttentionShape &shape = *task.shape;
  Layouts layouts(shape, task.sample, task.kvHead);
  const Layout &layout = layouts.scores, &values = layouts.values;
  Backward scratch(shape, task.scratch);
  Operands<S> from(task);
  sumProducts<S>(shape, values, from, scratch.products);
  clear(scratch.dq, shape.group * shape.sequence * layout.padded);
  int64_t endOfDocuments = task.visibleFrom ? 0 : shape.sequence; // end of the queries that attend to the last key
  for (int64_t firstKey = 0; firstKey < shape.keys; firstKey += kKeyBlock) {
    int64_t keys = minimum(kKeyBlock, shape.keys - firstKey), at = layout.keyAt(firstKey),
            valueAt = values.keyAt(firstKey);
    int64_t firstQuery = shape.causal ? queriesBefore(task, firstKey) : 0;
    while (endOfDocuments < shape.sequence && firstVisible(task, endOfDocuments) < firstKey + keys)
      ++endOfDocuments;
    int64_t endQuery = endOfDocuments;
    if (shape.window > 0) // the last key is in the window of `window` queries
      endQuery = minimum(endQuery, queriesBefore(task, firstKey + keys - 1 + shape.window));
    packTransposedPanels<S, kPaired<S>>(from.k + at, layout.keyStride, layout.columns, keys, scratch.keysAcross);
    packTransposedPanels<S, kPaired<S>>(from.v + valueAt, values.keyStride, values.columns, keys, scratch.valuesAcross);
    packPanels<S, false>(from.k + at, layout.keyStride, keys, layout.columns, scratch.keys);
    clear(scratch.dk, keys * layout.padded);
    clear(scratch.dv, keys * values.padded);
    for (int64_t head = 0; head < shape.group; ++head)
      for (int64_t query = firstQuery; query < endQuery; query += kQueryBlock)
        differentiateBlock<S>(task, layouts, scratch, head, query, minimum(kQueryBlock, endQuery - query), firstKey,
                              keys);
    storeRows<S>(scratch.dk, layout, keys, static_cast<Element<S> *>(task.dk) + at, layout.keyStride);
    storeRows<S>(scratch.dv, values, keys, static_cast<Element<S> *>(task.dv) + valueAt, values.keyStride);
  }
  for (int64_t head = 0; head < shape.group; ++head)
    storeRows<S>(scratch.dq + head * shape.sequence * layout.padded, layout, shape.sequence,
                 static_cast<Element<S> *>(task.dq) + layout.queryAt(0, head), layout.queryStride);
}

} // namespace

size_t attentionBackwardScratchBytes(const AttentionShape &shape) { return Backward(shape, nullptr).bytes; }

void attentionBackward(const AttentionBackwardTask &task) {
  withStorage(task.shape->storage, [&]<Storage S>() { backward<S>(task); });
}

} // namespace espalier::rt::cpu::ESPALIER_LEVEL
