// Gated linear recurrences in chunks of positions (Yang et al., "Gated Delta Networks", 2024; Dao and Gu, "Transformers
// are SSMs", 2024). Within a chunk, g_t is the sum of decays up to t, S the state before the chunk, and
//   u_t = beta_t e_t, e_t = v_t - exp(g_t) S^T k_t - sum_{j<t} A_tj u_j with A_tj = k_t.k_j exp(g_t - g_j), or e = v
//   out_t = exp(g_t) S^T q_t + sum_{j<=t} B_tj u_j with B_tj = q_t.k_j exp(g_t - g_j)
//   S becomes exp(g_last) S + sum_j exp(g_last - g_j) k_j u_j^T.
// No exponent is positive, because factors span only later positions. All arithmetic is in f32. The derivative stores
// the states at the borders of chunks in scratch, and goes through the chunks from the last to the first.
#include "runtime/kernels/cpu/attention.h"
#include "runtime/kernels/cpu/loops.h"

namespace espalier::rt::cpu::ESPALIER_LEVEL {

namespace {

/// A matrix of f32 in scratch; `turned` is its transpose.
struct View {
  float *data;
  int64_t stride;
  bool isTurned = false;
  View turned() const { return {data, stride, !isTurned}; }
};

float dot(const float *a, const float *b, int64_t count) {
  Floats sum{};
  for (int64_t i = 0; i < count; i += kWidth)
    sum += loadFirst<Storage::F32>(a + i, count - i) * loadFirst<Storage::F32>(b + i, count - i);
  return sumOf(sum)[0];
}

void addScaled(float *to, float factor, const float *from, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    to[i] += factor * from[i];
}

void clear(float *to, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = 0;
}

/// Replaces the elements by their exponentials.
void exponentiate(float *x, int64_t count) {
  for (int64_t i = 0; i < count; i += kWidth)
    storeFirst<Storage::F32>(x + i, exponential(loadFirst<Storage::F32>(x + i, count - i)), count - i);
}

/// A chunk of one head: its operands, A, B, e and u. Arrays of positions have `chunk` rows.
class Chunk {
public:
  Chunk(const RecurrenceShape &shape, void *memory, bool isBackward) : shape(shape) {
    Carver carver(memory);
    const int64_t C = shape.chunk, N = shape.keyDim, P = shape.valueDim, W = columns();
    for (float **keys : {&q, &k, &qIn, &kIn, &kOut})
      *keys = carver.take(C * N);
    for (float **values : {&v, &e, &u, &out})
      *values = carver.take(C * P);
    for (float **gates : {&g, &in, &after})
      *gates = carver.take(C * W);
    for (float **scores : {&a, &b})
      *scores = carver.take(C * C);
    spans = carver.take(C * C > N ? C * C : N);
    beta = carver.take(C);
    state = carver.take(N * P);
    products = carver.take(productFloats());
    if (isBackward) {
      for (float **keys : {&dq, &dk, &dkIn, &dkOut})
        *keys = carver.take(C * N);
      for (float **values : {&dout, &du, &de})
        *values = carver.take(C * P);
      for (float **scores : {&da, &db})
        *scores = carver.take(C * C);
      dg = carver.take(C * W);
      dState = carver.take(N * P);
      for (float **sums : {&dqSum, &dkSum})
        *sums = carver.take(shape.sequence * N);
      borders = carver.take(ceilDivide(shape.sequence, C) * N * P);
    }
    bytes = carver.bytes();
  }

  size_t bytes;

protected:
  int64_t heads() const { return shape.groups * shape.group; }
  int64_t columns() const { return shape.byColumn ? shape.keyDim : 1; }
  View keys(float *data) const { return {data, shape.keyDim}; }
  View values(float *data) const { return {data, shape.valueDim}; }
  View scores(float *data) const { return {data, shape.chunk}; }
  View states(float *data) const { return {data, shape.valueDim}; }
  float *borderAt(int64_t position) const { return borders + position / shape.chunk * shape.keyDim * shape.valueDim; }
  static void copy(float *to, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      to[i] = from[i];
  }
  /// Returns the index of the task's head at row `t` of the chunk in tensors without columns.
  int64_t headAt(const RecurrenceTask &task, int64_t t) const { return (task.begin + first + t) * heads() + task.head; }
  int64_t valueAt(const RecurrenceTask &task, int64_t t) const { return headAt(task, t) * shape.valueDim; }

  /// Returns the scratch of the largest product. A shorter sum may need more scratch than a longer one.
  int64_t productFloats() const {
    const int64_t sizes[] = {shape.chunk, shape.keyDim, shape.valueDim};
    size_t most = 0;
    for (int64_t m : sizes)
      for (int64_t n : sizes)
        for (int64_t k : sizes) {
          Matrix any{nullptr, Storage::F32, 0, false};
          size_t own = gemmScratchBytes(
              {.a = any, .b = any, .c = any, .m = m, .n = n, .k = k, .accumulate = true, .scratch = nullptr});
          most = own > most ? own : most;
        }
    return static_cast<int64_t>(most / sizeof(float));
  }

  /// Computes c [m, n] = or += a b.
  void multiply(View c, View a, View b, int64_t m, int64_t n, int64_t k, bool accumulate) {
    auto matrix = [](View view) { return Matrix{view.data, Storage::F32, view.stride, view.isTurned}; };
    gemm({.a = matrix(a),
          .b = matrix(b),
          .c = matrix(c),
          .m = m,
          .n = n,
          .k = k,
          .accumulate = accumulate,
          .scratch = products});
  }

  template <Storage S>
  void loadRows(float *to, int64_t count, const Element<S> *from, int64_t at, int64_t stride) const {
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t i = 0; i < count; i += kWidth)
        storeFirst<Storage::F32>(to + t * count + i, loadFirst<S>(from + at + t * stride + i, count - i), count - i);
  }
  /// Stores rows that are `stride` elements apart.
  template <Storage S> void storeRows(const float *from, int64_t count, Element<S> *to, int64_t stride) const {
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t i = 0; i < count; i += kWidth)
        storeFirst<S>(to + t * stride + i, loadFirst<Storage::F32>(from + t * count + i, count - i), count - i);
  }

  /// Loads the operands of the chunk, and computes the sums of decays and their factors.
  template <Storage S> void load(const RecurrenceTask &task) {
    const int64_t N = shape.keyDim, W = columns();
    rows = minimum(shape.chunk, task.length - first);
    int64_t key = ((task.begin + first) * shape.groups + task.head / shape.group) * N;
    loadRows<S>(q, N, static_cast<const Element<S> *>(task.q), key, shape.groups * N);
    loadRows<S>(k, N, static_cast<const Element<S> *>(task.k), key, shape.groups * N);
    loadRows<S>(v, shape.valueDim, static_cast<const Element<S> *>(task.v), valueAt(task, 0), heads() * shape.valueDim);
    int64_t begin = -1;
    for (int64_t t = 0; t < rows; ++t) {
      bool isFirst = task.visibleFrom && task.visibleFrom[first + t] >= first + t;
      begin = isFirst ? t : begin;
      begins[t] = begin;
      beta[t] = task.beta[headAt(task, t)];
      for (int64_t i = 0; i < W; ++i)
        g[t * W + i] = isFirst ? 0 : task.decay[headAt(task, t) * W + i] + (t > 0 ? g[(t - 1) * W + i] : 0);
    }
    const float *last = g + (rows - 1) * W;
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t i = 0; i < W; ++i) {
        in[t * W + i] = begins[t] < 0 ? g[t * W + i] : kNever;
        after[t * W + i] = t >= begin ? last[i] - g[t * W + i] : kNever;
      }
    exponentiate(in, rows * W);
    exponentiate(after, rows * W);
    scale(qIn, q, in);
    scale(kOut, k, after);
    if (shape.delta)
      scale(kIn, k, in);
  }

  /// Multiplies rows of keys by a factor of each position or of each column.
  void scale(float *to, const float *from, const float *factors) const {
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t i = 0; i < shape.keyDim; ++i)
        to[t * shape.keyDim + i] = from[t * shape.keyDim + i] * factors[shape.byColumn ? t * shape.keyDim + i : t];
  }

  /// Multiplies a state by the decay of the whole chunk.
  void fade(float *matrix) const {
    const float *last = in + (rows - 1) * columns();
    for (int64_t n = 0; n < shape.keyDim; ++n)
      for (int64_t p = 0; p < shape.valueDim; ++p)
        matrix[n * shape.valueDim + p] *= last[shape.byColumn ? n : 0];
  }

  /// Calls visit(t, j) for the pairs of positions of one document with j <= t.
  template <class Visit> void forEachPair(Visit visit) const {
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t j = begins[t] < 0 ? 0 : begins[t]; j <= t; ++j)
        visit(t, j);
  }

  /// Computes exp(g_t - g_j) of each column into `spans`.
  const float *spanOf(int64_t t, int64_t j) {
    const int64_t N = shape.keyDim;
    for (int64_t i = 0; i < N; ++i)
      spans[i] = g[t * N + i] - g[j * N + i];
    exponentiate(spans, N);
    return spans;
  }

  /// Computes A and B, which are 0 outside of documents and above the diagonal. The diagonal of A is 0.
  void score() {
    const int64_t C = shape.chunk, N = shape.keyDim;
    clear(a, C * C);
    if (shape.byColumn) {
      clear(b, C * C);
      return forEachPair([&](int64_t t, int64_t j) {
        const float *span = spanOf(t, j);
        float ofQuery = 0, ofKey = 0;
        for (int64_t i = 0; i < N; ++i) {
          ofQuery += q[t * N + i] * k[j * N + i] * span[i];
          ofKey += k[t * N + i] * k[j * N + i] * span[i];
        }
        b[t * C + j] = ofQuery;
        a[t * C + j] = j < t ? ofKey : 0;
      });
    }
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t j = 0; j < rows; ++j)
        spans[t * C + j] = j <= t && j >= begins[t] ? g[t] - g[j] : kNever;
      exponentiate(spans + t * C, rows);
    }
    multiply(scores(b), keys(q), keys(k).turned(), rows, rows, N, false);
    if (shape.delta)
      multiply(scores(a), keys(k), keys(k).turned(), rows, rows, N, false);
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t j = 0; j < rows; ++j) {
        b[t * C + j] *= spans[t * C + j];
        a[t * C + j] *= j < t ? spans[t * C + j] : 0;
      }
  }

  /// Computes A, B, e and u from the state before the chunk.
  void solve() {
    const int64_t P = shape.valueDim;
    score();
    if (shape.delta)
      multiply(values(e), keys(kIn), states(state), rows, P, shape.keyDim, false);
    for (int64_t t = 0; t < rows; ++t) {
      float *row = e + t * P;
      for (int64_t p = 0; p < P; ++p)
        row[p] = shape.delta ? v[t * P + p] - row[p] : v[t * P + p];
      for (int64_t j = 0; shape.delta && j < t; ++j)
        addScaled(row, -a[t * shape.chunk + j], u + j * P, P);
      for (int64_t p = 0; p < P; ++p)
        u[t * P + p] = beta[t] * row[p];
    }
  }

  static constexpr float kNever = -1000; ///< an exponent whose power is 0
  const RecurrenceShape &shape;
  int64_t first = 0, rows = 0;        ///< the positions of the chunk
  int64_t begins[kLongestChunk] = {}; ///< row of the first position of the document; -1: in an earlier chunk
  float *q, *k, *v, *g, *beta;
  float *in, *after;       ///< exp(g_t) and exp(g_last - g_t)
  float *qIn, *kIn, *kOut; ///< q and k with these factors
  float *spans, *a, *b;    ///< exp(g_t - g_j), A and B
  float *e, *u, *out, *state, *products;
  float *dq = nullptr, *dk = nullptr, *dkIn = nullptr, *dkOut = nullptr, *dout = nullptr, *du = nullptr, *de = nullptr,
        *da = nullptr, *db = nullptr, *dg = nullptr, *dState = nullptr;
  float *dqSum = nullptr, *dkSum = nullptr; ///< [sequence, keyDim]: of all heads of the group
  float *borders = nullptr;                 ///< the states before each chunk
};

/// All chunks of one head, or of the heads of one group.
class Head : Chunk {
public:
  using Chunk::bytes;
  using Chunk::Chunk;

  template <Storage S> void forward(const RecurrenceTask &task) {
    if (task.continues)
      copy(state, task.state, shape.keyDim * shape.valueDim);
    else
      clear(state, shape.keyDim * shape.valueDim);
    for (first = 0; first < task.length; first += shape.chunk) {
      if (task.dout)
        copy(borderAt(first), state, shape.keyDim * shape.valueDim);
      load<S>(task);
      solve();
      if (!task.dout) {
        multiply(values(out), keys(qIn), states(state), rows, shape.valueDim, shape.keyDim, false);
        multiply(values(out), scores(b), values(u), rows, shape.valueDim, rows, true);
        storeRows<S>(out, shape.valueDim, static_cast<Element<S> *>(task.out) + valueAt(task, 0),
                     heads() * shape.valueDim);
      }
      fade(state);
      multiply(states(state), keys(kOut).turned(), values(u), shape.keyDim, shape.valueDim, rows, true);
    }
    if (task.state && task.length > 0)
      copy(task.state, state, shape.keyDim * shape.valueDim);
    for (first = task.length; first < task.rows; first += rows) { // padding
      rows = minimum(shape.chunk, task.rows - first);
      clear(out, rows * shape.valueDim);
      storeRows<S>(out, shape.valueDim, static_cast<Element<S> *>(task.out) + valueAt(task, 0),
                   heads() * shape.valueDim);
    }
  }

  /// Differentiates all heads of a group.
  template <Storage S> void backward(RecurrenceTask task) {
    clear(dqSum, shape.sequence * shape.keyDim);
    clear(dkSum, shape.sequence * shape.keyDim);
    int64_t group = task.head / shape.group;
    for (int64_t end = task.head + shape.group; task.head < end; ++task.head)
      differentiateHead<S>(task);
    first = 0, rows = shape.sequence;
    int64_t at = (task.begin * shape.groups + group) * shape.keyDim;
    storeRows<S>(dqSum, shape.keyDim, static_cast<Element<S> *>(task.dq) + at, shape.groups * shape.keyDim);
    storeRows<S>(dkSum, shape.keyDim, static_cast<Element<S> *>(task.dk) + at, shape.groups * shape.keyDim);
  }

private:
  template <Storage S> void differentiateHead(const RecurrenceTask &task) {
    forward<S>(task);
    clear(dState, shape.keyDim * shape.valueDim);
    for (first = (ceilDivide(shape.sequence, shape.chunk) - 1) * shape.chunk; first >= 0; first -= shape.chunk) {
      copy(state, borderAt(first), shape.keyDim * shape.valueDim);
      load<S>(task);
      solve();
      loadRows<S>(dout, shape.valueDim, static_cast<const Element<S> *>(task.dout), valueAt(task, 0),
                  heads() * shape.valueDim);
      differentiate(task);
      addScaled(dqSum + first * shape.keyDim, 1, dq, rows * shape.keyDim);
      addScaled(dkSum + first * shape.keyDim, 1, dk, rows * shape.keyDim);
      storeRows<S>(de, shape.valueDim, static_cast<Element<S> *>(task.dv) + valueAt(task, 0), heads() * shape.valueDim);
    }
  }

  /// Computes the gradients of a chunk from dout and from dState, the gradient of the state after the chunk, which
  /// becomes that of the state before. `de` becomes the gradient of v.
  void differentiate(const RecurrenceTask &task) {
    const int64_t C = shape.chunk, N = shape.keyDim, P = shape.valueDim, W = columns();
    clear(dg, C * W);
    for (int64_t n = 0; n < N; ++n) // of exp(g_last) S
      dg[(rows - 1) * W + (shape.byColumn ? n : 0)] +=
          in[(rows - 1) * W + (shape.byColumn ? n : 0)] * dot(state + n * P, dState + n * P, P);
    multiply(values(du), scores(b).turned(), values(dout), rows, P, rows, false);
    multiply(values(du), keys(kOut), states(dState), rows, P, N, true);
    multiply(keys(dkOut), values(u), states(dState).turned(), rows, N, P, false);
    multiply(scores(db), values(dout), values(u).turned(), rows, rows, P, false);
    multiply(keys(dq), values(dout), states(state).turned(), rows, N, P, false); // of qIn
    fade(dState);
    multiply(states(dState), keys(qIn).turned(), values(dout), N, P, rows, true);
    for (int64_t t = rows - 1; t >= 0; --t) {
      for (int64_t later = t + 1; shape.delta && later < rows; ++later) // de has -beta times du of the later rows
        addScaled(du + t * P, a[later * C + t], de + later * P, P);
      task.dbeta[headAt(task, t)] = dot(du + t * P, e + t * P, P);
      for (int64_t p = 0; p < P; ++p)
        de[t * P + p] = -beta[t] * du[t * P + p];
    }
    if (shape.delta) {
      multiply(scores(da), values(de), values(u).turned(), rows, rows, P, false);
      multiply(keys(dkIn), values(de), states(state).turned(), rows, N, P, false);
      multiply(states(dState), keys(kIn).turned(), values(de), N, P, rows, true);
    } else {
      clear(da, C * C);
      clear(dkIn, C * N);
    }
    for (int64_t i = 0; i < rows * P; ++i)
      de[i] = -de[i];
    differentiateFactors();
    differentiatePairs();
    for (int64_t t = rows - 1; t >= 0; --t)
      for (int64_t i = 0; i < W; ++i) {
        if (t + 1 < rows)
          dg[t * W + i] += dg[(t + 1) * W + i];
        dg[t * W + i] = begins[t] == t ? 0 : dg[t * W + i]; // a document begins with a sum of 0
        task.ddecay[headAt(task, t) * W + i] = dg[t * W + i];
      }
  }

  /// Converts the gradients of scaled rows, qIn in dq, kIn and kOut, to those of q, k and g.
  void differentiateFactors() {
    const int64_t N = shape.keyDim, W = columns();
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t i = 0; i < N; ++i) {
        int64_t at = t * N + i, column = shape.byColumn ? i : 0, gate = t * W + column;
        float ofAfter = dkOut[at] * kOut[at];
        dg[gate] += dq[at] * qIn[at] - ofAfter + (shape.delta ? dkIn[at] * kIn[at] : 0);
        dg[(rows - 1) * W + column] += ofAfter;
        dq[at] *= in[gate];
        dk[at] = dkOut[at] * after[gate] + (shape.delta ? dkIn[at] * in[gate] : 0);
      }
  }

  /// Adds the gradients that A and B pass to q, k and g.
  void differentiatePairs() {
    const int64_t C = shape.chunk, N = shape.keyDim;
    if (shape.byColumn)
      return forEachPair([&](int64_t t, int64_t j) {
        const float *span = spanOf(t, j);
        float ofB = db[t * C + j], ofA = j < t && shape.delta ? da[t * C + j] : 0;
        for (int64_t i = 0; i < N; ++i) {
          int64_t late = t * N + i, early = j * N + i;
          float toEarly = span[i] * (ofB * q[late] + ofA * k[late]), toLate = span[i] * k[early];
          float slope = toEarly * k[early];
          dq[late] += ofB * toLate;
          dk[late] += ofA * toLate;
          dk[early] += toEarly;
          dg[late] += slope;
          dg[early] -= slope;
        }
      });
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t j = 0; j < rows; ++j) {
        int64_t at = t * C + j;
        float ofA = shape.delta && j < t ? da[at] : 0, slope = db[at] * b[at] + ofA * a[at];
        dg[t] += slope;
        dg[j] -= slope;
        db[at] *= spans[at];
        da[at] = ofA * spans[at];
      }
    multiply(keys(dq), scores(db), keys(k), rows, N, rows, true);
    multiply(keys(dk), scores(db).turned(), keys(q), rows, N, rows, true);
    if (!shape.delta)
      return;
    multiply(keys(dk), scores(da), keys(k), rows, N, rows, true);
    multiply(keys(dk), scores(da).turned(), keys(k), rows, N, rows, true);
  }
};

} // namespace

size_t recurrenceScratchBytes(const RecurrenceShape &shape, bool isBackward) {
  return Head(shape, nullptr, isBackward).bytes;
}

void recurrence(const RecurrenceTask &task) {
  Head head(*task.shape, task.scratch, task.dout != nullptr);
  withStorage(task.shape->storage, [&]<Storage S>() {
    if (task.dout)
      head.backward<S>(task);
    else
      head.forward<S>(task);
  });
}

} // namespace espalier::rt::cpu::ESPALIER_LEVEL
