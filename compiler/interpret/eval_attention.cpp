// Attention and its derivative, one query row at a time and straight from the formulas:
//   s_k = scale q.k_k, lse = log sum_k exp(s_k), p_k = exp(s_k - lse), o = sum_k m_k p_k v_k
// with m_k the dropout factor of the weight. With a soft cap c, s_k = c tanh(scale q.k_k / c). Backward, for the row's
// cotangent g:
//   ds_k = p_k (m_k g.v_k - g.o), dq = scale sum_k ds_k k_k, dk_k = scale ds_k q, dv_k = m_k p_k g
// where a soft cap multiplies ds_k by 1 - (s_k / c)^2.
#include "compiler/interpret/dropout_mask.h"
#include "compiler/interpret/evaluators.h"
#include "dialects/model/dialect.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace espalier {

namespace {

/// The scores of queries and keys.
class Scores {
public:
  template <typename Op>
  explicit Scores(Op op)
      : scale(op.getScale().convertToDouble()), cap(op.getSoftCap() ? op.getSoftCap()->convertToDouble() : 0),
        window(op.getWindow() ? static_cast<int64_t>(*op.getWindow()) : 0) {}

  double of(double product) const { return cap > 0 ? cap * std::tanh(scale * product / cap) : scale * product; }
  /// Returns the derivative of `score` with respect to the product.
  double slope(double score) const { return cap > 0 ? scale * (1 - score * score / (cap * cap)) : scale; }
  /// Returns the first key of the window of a query at `position`.
  int64_t firstKey(int64_t position) const { return window > 0 ? std::max<int64_t>(0, position + 1 - window) : 0; }

private:
  double scale, cap;
  int64_t window;
};

/// The row indices of one attention: q is [batch, queries, kv heads, group, depth] (group 1 if q has no such
/// dimension), k is [batch, seq, kv heads, depth] and v is [batch, seq, kv heads, width]. The queries may be a part of
/// the positions.
template <typename Op> class Rows {
public:
  /// `visibleFrom` is [batch, queries], or null.
  Rows(Op op, const Tensor &q, const Tensor &k, const Tensor &v, const Tensor *visibleFrom, const EvalContext &context)
      : batch(k.shape()[0]), queries(q.shape()[1]), seq(k.shape()[1]), heads(k.shape()[2]), depth(k.shape()[3]),
        width(v.shape()[3]), group(q.shape().size() == 5 ? q.shape()[3] : 1), isCausal(op.getCausal()), scores(op),
        rank(q.shape().size()), visibleFrom(visibleFrom), mask(op, q.type, context) {}

  /// Returns the index of q's row. out and, without depth, log_sum_exp use the same index.
  int64_t queryRow(int64_t b, int64_t t, int64_t h, int64_t g) const {
    return ((b * queries + t) * heads + h) * group + g;
  }
  int64_t keyRow(int64_t b, int64_t t, int64_t h) const { return (b * seq + t) * heads + h; }
  /// Returns the first key that the query at `t` attends to, and the end of these keys.
  int64_t firstKeyOf(int64_t b, int64_t t) const {
    int64_t position = mask.place(1, t), first = scores.firstKey(position);
    return visibleFrom ? std::max(first, std::min(static_cast<int64_t>(visibleFrom->values[b * queries + t]), position))
                       : first;
  }
  int64_t endKeyOf(int64_t t) const { return isCausal ? mask.place(1, t) + 1 : seq; }

  /// Returns the dropout factor of the weight of key `key` for query `t`.
  double keep(int64_t b, int64_t t, int64_t h, int64_t g, int64_t key) const {
    int64_t head = mask.place(2, h);
    if (rank == 5)
      head = head * mask.size(3) + mask.place(3, g);
    auto length = static_cast<uint64_t>(mask.size(1));
    return mask.factor(b, (static_cast<uint64_t>(head) * length + mask.place(1, t)) * length + key);
  }

  template <typename Body> void forEachRow(Body body) const {
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t t = 0; t < queries; ++t)
        for (int64_t h = 0; h < heads; ++h)
          for (int64_t g = 0; g < group; ++g)
            body(b, t, h, g);
  }

  const int64_t batch, queries, seq, heads, depth, width, group;
  const bool isCausal;
  const Scores scores;

private:
  const size_t rank;
  const Tensor *visibleFrom;
  DropoutMask mask;
};

double dot(const double *a, const double *b, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i)
    sum += a[i] * b[i];
  return sum;
}

/// Computes y += factor * x.
void addScaled(double *y, double factor, const double *x, int64_t size) {
  for (int64_t i = 0; i < size; ++i)
    y[i] += factor * x[i];
}

double logSumExp(ArrayRef<double> scores) {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (double score : scores)
    largest = std::max(largest, score);
  for (double score : scores)
    sum += std::exp(score - largest);
  return largest + std::log(sum);
}

/// Returns the values of attention. `sinks`, or null, has one score per head and group; `visibleFrom` may be null.
template <typename Op>
Results attend(Op op, Operands x, const Tensor *sinks, const Tensor *visibleFrom, EvalContext &context) {
  const Tensor &q = *x[0], &k = *x[1], &v = *x[2];
  Rows<Op> rows(op, q, k, v, visibleFrom, context);
  std::vector<Tensor> results;
  results.emplace_back(cast<RankedTensorType>(op.getOut().getType()));
  for (Value perQuery : op->getResults().drop_front())
    results.emplace_back(cast<RankedTensorType>(perQuery.getType()));
  Tensor &out = results[0], &lse = results[1];
  rows.forEachRow([&](int64_t b, int64_t t, int64_t h, int64_t g) {
    int64_t row = rows.queryRow(b, t, h, g), depth = rows.depth, width = rows.width, first = rows.firstKeyOf(b, t);
    std::vector<double> scores;
    for (int64_t key = first; key < rows.endKeyOf(t); ++key)
      scores.push_back(rows.scores.of(dot(&q.values[row * depth], &k.values[rows.keyRow(b, key, h) * depth], depth)));
    if (results.size() > 2) // the largest scores
      results[2].values[row] = *llvm::max_element(scores);
    if (sinks)
      scores.push_back(sinks->values[h * rows.group + g]);
    lse.values[row] = logSumExp(scores);
    for (int64_t key = first; key < rows.endKeyOf(t); ++key) {
      double weight = rows.keep(b, t, h, g, key) * std::exp(scores[key - first] - lse.values[row]);
      addScaled(&out.values[row * width], weight, &v.values[rows.keyRow(b, key, h) * width], width);
    }
  });
  return results;
}

Results evalAttention(model::AttentionOp op, Operands x, EvalContext &context) {
  return attend(op, x, nullptr, x.size() > 3 ? x[3] : nullptr, context);
}

Results evalSinkAttention(model::SinkAttentionOp op, Operands x, EvalContext &context) {
  return attend(op, x, x[3], x.size() > 4 ? x[4] : nullptr, context);
}

Results evalKeepMaxima(model::KeepMaximaOp, Operands x, EvalContext &) {
  std::vector<Tensor> results = {*x[0]};
  std::vector<double> &maxima = results.front().values;
  size_t group = x[1]->type.getRank() > 3 ? x[1]->shape()[3] : 1;
  for (auto [index, score] : llvm::enumerate(x[1]->values))
    if (double &largest = maxima[index / group % maxima.size()]; score > largest)
      largest = score;
  return results;
}

Results evalAttentionGrad(model::AttentionGradOp op, Operands x, EvalContext &context) {
  const Tensor &q = *x[0], &k = *x[1], &v = *x[2], &out = *x[3], &lse = *x[4], &cotangent = *x[5];
  Rows<model::AttentionGradOp> rows(op, q, k, v, x.size() > 6 ? x[6] : nullptr, context);
  std::vector<Tensor> results;
  for (Type type : op->getResultTypes())
    results.emplace_back(cast<RankedTensorType>(type));
  Tensor &dq = results[0], &dk = results[1], &dv = results[2];
  rows.forEachRow([&](int64_t b, int64_t t, int64_t h, int64_t g) {
    int64_t row = rows.queryRow(b, t, h, g), depth = rows.depth, width = rows.width;
    const double *query = &q.values[row * depth], *upstream = &cotangent.values[row * width];
    double shared = dot(upstream, &out.values[row * width], width);
    for (int64_t key = rows.firstKeyOf(b, t); key < rows.endKeyOf(t); ++key) {
      int64_t at = rows.keyRow(b, key, h) * depth, valueAt = rows.keyRow(b, key, h) * width;
      double score = rows.scores.of(dot(query, &k.values[at], depth)), weight = std::exp(score - lse.values[row]);
      double keep = rows.keep(b, t, h, g, key);
      double slope = rows.scores.slope(score) * weight * (keep * dot(upstream, &v.values[valueAt], width) - shared);
      addScaled(&dq.values[row * depth], slope, &k.values[at], depth);
      addScaled(&dk.values[at], slope, query, depth);
      addScaled(&dv.values[valueAt], keep * weight, upstream, width);
    }
  });
  return results;
}

/// Stores keys and values of all tokens first. A token attends to earlier tokens of the same call, not to later ones.
Results evalAttendCache(model::AttendCacheOp op, Operands x, EvalContext &) {
  const Tensor &q = *x[0], &k = *x[1], &v = *x[2], &positions = *x[3];
  std::vector<Tensor> results;
  results.emplace_back(cast<RankedTensorType>(op.getOut().getType()));
  results.push_back(*x[4]);
  results.push_back(*x[5]);
  if (op.getLogSumExp())
    results.emplace_back(cast<RankedTensorType>(op.getLogSumExp().getType()));
  Tensor &out = results[0], &keys = results[1], &values = results[2];
  int64_t batch = k.shape()[0], tokens = k.shape()[1], heads = k.shape()[2], depth = k.shape()[3], width = v.shape()[3],
          group = q.shape().size() == 5 ? q.shape()[3] : 1, context = keys.shape()[2];
  auto positionOf = [&](int64_t b, int64_t t) { return static_cast<int64_t>(positions.values[b * tokens + t]); };
  auto isPadding = [&](int64_t position) { return position < 0 || position >= context; };
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t h = 0; h < heads && !isPadding(positionOf(b, t)); ++h) {
        int64_t from = (b * tokens + t) * heads + h, to = (b * heads + h) * context + positionOf(b, t);
        std::copy_n(&k.values[from * depth], depth, &keys.values[to * depth]);
        std::copy_n(&v.values[from * width], width, &values.values[to * width]);
      }
  Scores score(op);
  for (int64_t row = 0; row < batch * tokens * heads * group; ++row) {
    int64_t h = row / group % heads, token = row / group / heads, b = token / tokens;
    int64_t position = positionOf(b, token % tokens), first = (b * heads + h) * context;
    if (isPadding(position))
      continue;
    std::vector<double> scores;
    for (int64_t key = score.firstKey(position); key <= position; ++key)
      scores.push_back(score.of(dot(&q.values[row * depth], &keys.values[(first + key) * depth], depth)));
    double sum = logSumExp(scores);
    if (results.size() > 3)
      results[3].values[row] = sum;
    for (size_t i = 0; i < scores.size(); ++i) {
      int64_t key = score.firstKey(position) + static_cast<int64_t>(i);
      addScaled(&out.values[row * width], std::exp(scores[i] - sum), &values.values[(first + key) * width], width);
    }
  }
  return results;
}

} // namespace

void addAttention(EvaluatorTable &table) {
  table.add(evalAttendCache);
  table.add(evalAttention);
  table.add(evalAttentionGrad);
  table.add(evalSinkAttention);
  table.add(evalKeepMaxima);
}

} // namespace espalier
