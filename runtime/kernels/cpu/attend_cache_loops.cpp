// Attention over a cache, one query at a time. The keys and values of a head are contiguous, so that a pass reads two
// streams. With one new token per sequence nothing is read twice, so blocking would not help.
#include "runtime/kernels/cpu/loops.h"
#include "runtime/kernels/cpu/vector.h"

namespace espalier::rt::cpu::ESPALIER_LEVEL {

namespace {

template <Storage S> class CacheAttention {
public:
  explicit CacheAttention(const AttendCacheTask &task)
      : task(task), depth(task.headDim), columns(task.valueDim), query(task.scratch),
        scores(task.scratch + roundUp(kLargestHead, kWidth)) {}

  void run() {
    for (int64_t token = 0; token < task.tokens; ++token) {
      int64_t position = task.positions[token];
      bool isPadding = position < 0 || position >= task.context;
      if (!isPadding) {
        keep(at(task.k, token * task.keyStride), at(task.keys, position * depth), depth);
        keep(at(task.v, token * task.valueStride), at(task.values, position * columns), columns);
      }
      for (int64_t head = 0; head < task.group; ++head) {
        Element<S> *out = at(task.out, token * task.outStride + head * columns);
        float sum = 0;
        if (isPadding)
          clear(out);
        else
          sum = attend(at(task.q, token * task.queryStride + head * depth), position + 1, out);
        if (task.logSumExp)
          task.logSumExp[token * task.sumStride + head] = sum;
      }
    }
  }

private:
  static const Element<S> *at(const void *base, int64_t place) { return static_cast<const Element<S> *>(base) + place; }
  static Element<S> *at(void *base, int64_t place) { return static_cast<Element<S> *>(base) + place; }

  static void keep(const Element<S> *from, Element<S> *row, int64_t count) {
    __builtin_memcpy(row, from, static_cast<size_t>(count) * sizeof(Element<S>));
  }

  void clear(Element<S> *out) const { __builtin_memset(out, 0, static_cast<size_t>(columns) * sizeof(Element<S>)); }

  /// Computes out = sum over rows of softmax(scale q.k) v: the first `keys` rows, or those of them in the window.
  /// Returns the logarithm of the sum of the exponentials of their scores if the task asks for it.
  float attend(const Element<S> *q, int64_t keys, Element<S> *out) {
    first = task.window > 0 && keys > task.window ? keys - task.window : 0;
    for (int64_t i = 0; i < depth; i += kWidth)
      storeFloats(query + i, loadFirst<S>(q + i, depth - i) * task.scale);
    Floats largest = splat(-3.0e38f);
    for (int64_t key = first; key < keys; ++key) {
      Floats score = dot(at(task.keys, key * depth));
      if (task.softCap > 0)
        score = hyperbolicTangent(score * (1.0f / task.softCap)) * task.softCap;
      largest = maximum(largest, score);
      scores[key] = score[0];
    }
    float sum = weigh(keys, largest);
    for (int64_t i = 0; i < columns; i += kWidth)
      storeFirst<S>(out + i, column(i, keys) * (1.0f / sum), columns - i);
    return task.logSumExp ? largest[0] + __builtin_logf(sum) : 0;
  }

  /// The lanes after the head dimension are zero in the query and in the row.
  Floats dot(const Element<S> *row) const {
    Floats sum = {};
    for (int64_t i = 0; i < depth; i += kWidth)
      sum += loadFloats(query + i) * loadFirst<S>(row + i, depth - i);
    return sumOf(sum);
  }

  /// Turns scores into unnormalized weights; returns their sum.
  float weigh(int64_t keys, Floats largest) {
    Floats sum = {};
    for (int64_t key = first; key < keys; key += kWidth) {
      int64_t count = minimum(kWidth, keys - key);
      Floats weight = exponential(loadFloats(scores + key) - largest);
      for (int64_t lane = count; lane < kWidth; ++lane)
        weight[lane] = 0;
      storeFloats(scores + key, weight);
      sum += weight;
    }
    return sumOf(sum)[0];
  }

  /// Returns columns [i, i + kWidth) of the weighted sum of values.
  Floats column(int64_t i, int64_t keys) const {
    const Element<S> *value = at(static_cast<const void *>(task.values), i);
    Floats even = {}, odd = {};
    int64_t key = first;
    for (; key + 1 < keys; key += 2) {
      even += loadFirst<S>(value + key * columns, columns - i) * scores[key];
      odd += loadFirst<S>(value + (key + 1) * columns, columns - i) * scores[key + 1];
    }
    if (key < keys)
      even += loadFirst<S>(value + key * columns, columns - i) * scores[key];
    return even + odd;
  }

  const AttendCacheTask &task;
  const int64_t depth, columns; ///< elements of a key and of a value
  int64_t first = 0;            ///< the first row that the query attends to
  float *query, *scores;
};

} // namespace

void attendCache(const AttendCacheTask &task) {
  withStorage(task.storage, [&]<Storage S>() { CacheAttention<S>(task).run(); });
}

} // namespace espalier::rt::cpu::ESPALIER_LEVEL
