// Recurrences and causal convolutions, position by position and straight from the formulas. Backward keeps the state
// before each position. With S' = exp(decay) S, e = v - S'^T k (or v), u = beta e, S = S' + k u^T and o = S^T q:
//   dS += q do^T, dq = S do, du = dS^T k, dk = dS u, dbeta = du.e, de = beta du, dv = de,
//   dS' = dS - k de^T and dk -= S' de (with delta), ddecay = dS' * S', dS = exp(decay) dS'.
#include "compiler/interpret/evaluators.h"
#include "dialects/model/dialect.h"

#include <cmath>

using namespace mlir;

namespace espalier {

namespace {

/// Returns whether a document begins at position `t` of a sample.
bool isBegin(const Tensor *visibleFrom, int64_t sample, int64_t t, int64_t length) {
  return visibleFrom && visibleFrom->values[sample * length + t] >= static_cast<double>(t);
}

/// One step of the state of one head, [depth, width].
struct Step {
  std::vector<double> before, faded, after, error; ///< S, S', the next S, and e
};

/// The heads of a recurrence.
class Heads {
public:
  template <typename Op>
  Heads(Op op, Operands x, const Tensor *visibleFrom)
      : x(x), seq(x[0]->shape()[1]), depth(x[0]->shape()[3]), width(x[2]->shape().back()),
        group(x[2]->shape().size() == 5 ? x[2]->shape()[3] : 1), groups(x[0]->shape()[2]), batch(x[0]->shape()[0]),
        hasDelta(op.getDelta()), isByColumn(x[3]->shape().size() > x[4]->shape().size()), visibleFrom(visibleFrom) {}

  /// Calls visit(sample, head) for all heads.
  void forEach(llvm::function_ref<void(int64_t, int64_t)> visit) const {
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < groups * group; ++h)
        visit(b, h);
  }
  int64_t headRow(int64_t b, int64_t t, int64_t h) const { return (b * seq + t) * groups * group + h; }
  int64_t keyRow(int64_t b, int64_t t, int64_t h) const { return (b * seq + t) * groups + h / group; }
  const double *query(int64_t b, int64_t t, int64_t h) const { return &x[0]->values[keyRow(b, t, h) * depth]; }
  const double *key(int64_t b, int64_t t, int64_t h) const { return &x[1]->values[keyRow(b, t, h) * depth]; }
  const double *value(int64_t b, int64_t t, int64_t h) const { return &x[2]->values[headRow(b, t, h) * width]; }
  double beta(int64_t b, int64_t t, int64_t h) const { return x[4]->values[headRow(b, t, h)]; }
  double fade(int64_t b, int64_t t, int64_t h, int64_t n) const {
    int64_t row = headRow(b, t, h);
    return isBegin(visibleFrom, b, t, seq) ? 0 : std::exp(x[3]->values[isByColumn ? row * depth + n : row]);
  }

  /// Computes the first `count` steps of a head from `state`.
  std::vector<Step> steps(int64_t b, int64_t h, std::vector<double> state, int64_t count) const {
    std::vector<Step> all;
    for (int64_t t = 0; t < count; ++t) {
      Step step{.before = state, .faded = state, .after = {}, .error = {}};
      for (int64_t n = 0; n < depth; ++n)
        for (int64_t p = 0; p < width; ++p)
          step.faded[n * width + p] *= fade(b, t, h, n);
      step.after = step.faded;
      for (int64_t p = 0; p < width; ++p) {
        double error = value(b, t, h)[p];
        for (int64_t n = 0; hasDelta && n < depth; ++n)
          error -= step.faded[n * width + p] * key(b, t, h)[n];
        step.error.push_back(error);
        for (int64_t n = 0; n < depth; ++n)
          step.after[n * width + p] += key(b, t, h)[n] * beta(b, t, h) * error;
      }
      state = step.after;
      all.push_back(std::move(step));
    }
    return all;
  }

  /// Computes all steps of a head from a state of zeros.
  std::vector<Step> steps(int64_t b, int64_t h) const { return steps(b, h, std::vector<double>(depth * width), seq); }
  /// Adds the outputs of these steps.
  void read(const std::vector<Step> &steps, int64_t b, int64_t h, Tensor &out) const {
    for (size_t t = 0; t < steps.size(); ++t)
      for (int64_t n = 0; n < depth; ++n)
        for (int64_t p = 0; p < width; ++p)
          out.values[headRow(b, static_cast<int64_t>(t), h) * width + p] +=
              steps[t].after[n * width + p] * query(b, static_cast<int64_t>(t), h)[n];
  }

  Operands x;
  const int64_t seq, depth, width, group, groups, batch;
  const bool hasDelta, isByColumn;

private:
  const Tensor *visibleFrom;
};

void evalRecurrence(model::RecurrenceOp op, Operands x, const EvalContext &, Tensor &out) {
  Heads heads(op, x, op.getVisibleFrom() ? x.back() : nullptr);
  heads.forEach([&](int64_t b, int64_t h) { heads.read(heads.steps(b, h), b, h, out); });
}

/// Returns the number of a sample's tokens, which padding follows.
int64_t tokensOf(const Tensor &positions, int64_t sample) {
  int64_t seq = positions.shape()[1], count = 0;
  while (count < seq && positions.values[sample * seq + count] >= 0)
    ++count;
  return count;
}

Results evalCarriedRecurrence(model::CarriedRecurrenceOp op, Operands x, EvalContext &) {
  Heads heads(op, x, /*visibleFrom=*/nullptr);
  const Tensor &positions = *x[5];
  std::vector<Tensor> results;
  results.emplace_back(cast<RankedTensorType>(op.getOut().getType()));
  results.push_back(*x[6]);
  int64_t size = heads.depth * heads.width;
  heads.forEach([&](int64_t b, int64_t h) {
    int64_t tokens = tokensOf(positions, b);
    if (tokens == 0)
      return;
    auto kept = results[1].values.begin() + (b * heads.groups * heads.group + h) * size;
    std::vector<double> state(size);
    if (positions.values[b * heads.seq] > 0)
      std::copy_n(kept, size, state.begin());
    std::vector<Step> steps = heads.steps(b, h, state, tokens);
    heads.read(steps, b, h, results[0]);
    llvm::copy(steps.back().after, kept);
  });
  return results;
}

/// Computes the gradients of one position, and replaces the gradient of the state after it by that of the state before.
void differentiateStep(const Heads &heads, const Step &step, const double *upstream, int64_t b, int64_t t, int64_t h,
                       std::vector<double> &dState, std::vector<Tensor> &results) {
  int64_t row = heads.headRow(b, t, h), depth = heads.depth, width = heads.width;
  const double *q = heads.query(b, t, h), *k = heads.key(b, t, h);
  double beta = heads.beta(b, t, h);
  int64_t keyRow = heads.keyRow(b, t, h);
  double *dq = &results[0].values[keyRow * depth], *dk = &results[1].values[keyRow * depth];
  for (int64_t n = 0; n < depth; ++n)
    for (int64_t p = 0; p < width; ++p) {
      dq[n] += step.after[n * width + p] * upstream[p];
      dState[n * width + p] += q[n] * upstream[p];
    }
  for (int64_t p = 0; p < width; ++p) {
    double du = 0;
    for (int64_t n = 0; n < depth; ++n) {
      du += dState[n * width + p] * k[n];
      dk[n] += dState[n * width + p] * beta * step.error[p];
    }
    results[4].values[row] += du * step.error[p];
    results[2].values[row * width + p] = beta * du;
    for (int64_t n = 0; heads.hasDelta && n < depth; ++n) {
      dState[n * width + p] -= k[n] * beta * du;
      dk[n] -= step.faded[n * width + p] * beta * du;
    }
  }
  for (int64_t n = 0; n < depth; ++n)
    for (int64_t p = 0; p < width; ++p) {
      results[3].values[heads.isByColumn ? row * depth + n : row] += dState[n * width + p] * step.faded[n * width + p];
      dState[n * width + p] *= heads.fade(b, t, h, n);
    }
}

Results evalRecurrenceGrad(model::RecurrenceGradOp op, Operands x, EvalContext &) {
  Heads heads(op, x, op.getVisibleFrom() ? x.back() : nullptr);
  std::vector<Tensor> results;
  for (Type type : op->getResultTypes())
    results.emplace_back(cast<RankedTensorType>(type));
  heads.forEach([&](int64_t b, int64_t h) {
    std::vector<Step> steps = heads.steps(b, h);
    std::vector<double> dState(heads.depth * heads.width);
    for (int64_t t = heads.seq - 1; t >= 0; --t)
      differentiateStep(heads, steps[t], &x[5]->values[heads.headRow(b, t, h) * heads.width], b, t, h, dState, results);
  });
  return results;
}

/// Calls visit(output, input, tap) for the rows of all terms of a convolution over x [batch, seq, channels..].
void forEachTerm(const Tensor &x, int64_t taps, const Tensor *visibleFrom,
                 llvm::function_ref<void(int64_t, int64_t, int64_t)> visit) {
  int64_t seq = x.shape()[1];
  for (int64_t row = 0; row < x.shape()[0] * seq; ++row) {
    int64_t t = row % seq, begin = 0;
    if (visibleFrom)
      begin = std::max<int64_t>(0, std::min(static_cast<int64_t>(visibleFrom->values[row]), t));
    for (int64_t i = 0; i < taps && t - i >= begin; ++i)
      visit(row, row - i, taps - 1 - i);
  }
}

int64_t channelsOf(const Tensor &x) { return static_cast<int64_t>(x.values.size()) / (x.shape()[0] * x.shape()[1]); }

void evalCausalConv(model::CausalConvOp op, Operands x, const EvalContext &, Tensor &y) {
  int64_t channels = channelsOf(*x[0]), taps = x[1]->shape().back();
  forEachTerm(*x[0], taps, op.getVisibleFrom() ? x.back() : nullptr, [&](int64_t output, int64_t input, int64_t tap) {
    if (op.getTransposed())
      std::swap(output, input);
    for (int64_t c = 0; c < channels; ++c)
      y.values[output * channels + c] += x[1]->values[c * taps + tap] * x[0]->values[input * channels + c];
  });
}

Results evalCarriedConv(model::CarriedConvOp op, Operands x, EvalContext &) {
  const Tensor &in = *x[0], &weight = *x[1], &positions = *x[2];
  std::vector<Tensor> results;
  results.emplace_back(cast<RankedTensorType>(op.getY().getType()));
  results.push_back(*x[3]);
  std::vector<double> &halo = results[1].values;
  int64_t seq = in.shape()[1], channels = channelsOf(in), taps = weight.shape().back(), before = taps - 1;
  for (int64_t b = 0; b < in.shape()[0]; ++b) {
    int64_t tokens = tokensOf(positions, b);
    auto inputAt = [&](int64_t t, int64_t c) {
      return t < 0 ? halo[(b * before + before + t) * channels + c] : in.values[(b * seq + t) * channels + c];
    };
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; i < taps && i <= static_cast<int64_t>(positions.values[b * seq + t]); ++i)
        for (int64_t c = 0; c < channels; ++c)
          results[0].values[(b * seq + t) * channels + c] += weight.values[c * taps + before - i] * inputAt(t - i, c);
    for (int64_t t = -before; t < 0; ++t)
      for (int64_t c = 0; c < channels; ++c)
        halo[(b * before + before + t) * channels + c] = inputAt(t + tokens, c);
  }
  return results;
}

void evalCausalConvGrad(model::CausalConvGradOp op, Operands x, const EvalContext &, Tensor &gradient) {
  int64_t channels = channelsOf(*x[0]), taps = gradient.shape().back();
  forEachTerm(*x[0], taps, op.getVisibleFrom() ? x.back() : nullptr, [&](int64_t output, int64_t input, int64_t tap) {
    for (int64_t c = 0; c < channels; ++c)
      gradient.values[c * taps + tap] += x[0]->values[input * channels + c] * x[1]->values[output * channels + c];
  });
}

} // namespace

void addRecurrences(EvaluatorTable &table) {
  table.add(evalRecurrence);
  table.add(evalRecurrenceGrad);
  table.add(evalCarriedRecurrence);
  table.add(evalCausalConv);
  table.add(evalCarriedConv);
  table.add(evalCausalConvGrad);
}

} // namespace espalier
