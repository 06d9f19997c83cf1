// Recurrences and causal convolutions, position by position and straight from the formulas. A shard of a sequence has
// one run of positions, or two in zigzag order. Backward keeps the state before each position. With S' = exp(decay) S,
// e = v - S'^T k (or v), u = beta e, S = S' + k u^T and o = S^T q:
//   dS += q do^T, dq = S do, du = dS^T k, dk = dS u, dbeta = du.e, de = beta du, dv = de,
//   dS' = dS - k de^T and dk -= S' de (with delta), ddecay = dS' * S', dS = exp(decay) dS'.
#include "compiler/interpret/evaluators.h"
#include "dialects/attributes.h"
#include "dialects/model/shards.h"

#include <cmath>

using namespace mlir;

namespace espalier {

namespace {

int64_t runsOnRank(Operation *op) { return dist::zigzagAttr.isOn(op) ? 2 : 1; }

/// The runs of a sequence on this rank, each of `length` positions.
struct Runs {
  /// `positions` are those of the shard that the op reads, `whole` those of all ranks.
  template <typename Op>
  Runs(Op op, int64_t positions, int64_t whole, const EvalContext &context)
      : count(runsOnRank(op)), length(positions / count), whole(whole),
        first(originOf(op.getFirstPositionAttr(), context)) {}
  explicit Runs(int64_t positions) : count(1), length(positions), whole(positions), first(0) {}

  /// Returns the number of a run of this rank among the runs of all ranks.
  int64_t number(int64_t run) const { return (run == 0 ? first : whole - length - first) / length; }
  /// Returns the position in the whole sequence of position `t` of this rank.
  int64_t position(int64_t t) const { return number(t / length) * length + t % length; }

  int64_t count, length, whole, first;
};

/// One step of the state of one head, [depth, width].
struct Step {
  std::vector<double> before, faded, after, error; ///< S, S', the next S, and e
};

/// The heads of a recurrence.
class Heads {
public:
  template <typename Op>
  Heads(Op op, Operands x, const Tensor *visibleFrom, Runs runs)
      : x(x), runs(runs), seq(x[0]->shape()[1]), depth(x[0]->shape()[3]), width(x[2]->shape().back()),
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
    bool isBegin = visibleFrom && visibleFrom->values[b * seq + t] >= static_cast<double>(runs.position(t));
    return isBegin ? 0 : std::exp(x[3]->values[isByColumn ? row * depth + n : row]);
  }

  /// Computes the steps of a head over [begin, end) from `state`.
  std::vector<Step> steps(int64_t b, int64_t h, std::vector<double> state, int64_t begin, int64_t end) const {
    std::vector<Step> all;
    for (int64_t t = begin; t < end; ++t) {
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

  /// Returns the terms of a run of the whole sequence in gathered border_states.
  const double *termsOf(const Tensor &borders, int64_t b, int64_t number, int64_t h) const {
    int64_t size = depth * borders.shape().back();
    return &borders.values[((b * borders.shape()[1] + number) * groups * group + h) * size];
  }
  /// Computes A S + B of a run, or A^T S + C if there are `ends`.
  std::vector<double> passed(const std::vector<double> &state, const Tensor &borders, const Tensor *ends, int64_t b,
                             int64_t number, int64_t h) const {
    int64_t columns = borders.shape().back();
    const double *terms = termsOf(borders, b, number, h);
    const double *added = ends ? termsOf(*ends, b, number, h) : terms;
    auto factor = [&](int64_t n, int64_t m) {
      return hasDelta ? terms[(ends ? m : n) * columns + width + (ends ? n : m)] : terms[n * columns + width];
    };
    std::vector<double> next(depth * width);
    for (int64_t n = 0; n < depth; ++n)
      for (int64_t p = 0; p < width; ++p) {
        next[n * width + p] = added[n * (ends ? width : columns) + p];
        for (int64_t m = hasDelta ? 0 : n; m < (hasDelta ? depth : n + 1); ++m)
          next[n * width + p] += factor(n, m) * state[m * width + p];
      }
    return next;
  }
  /// Computes all steps of a head. The states before the runs of a shard follow from `borders`.
  std::vector<Step> steps(int64_t b, int64_t h, const Tensor *borders) const {
    std::vector<Step> all;
    for (int64_t run = 0; run < runs.count; ++run) {
      std::vector<double> state(depth * width);
      for (int64_t number = 0; borders && number < runs.number(run); ++number)
        state = passed(state, *borders, /*ends=*/nullptr, b, number, h);
      llvm::append_range(all, steps(b, h, state, run * runs.length, (run + 1) * runs.length));
    }
    return all;
  }
  /// Adds the outputs of these steps, the first ones of a head.
  void read(const std::vector<Step> &steps, int64_t b, int64_t h, Tensor &out) const {
    for (size_t t = 0; t < steps.size(); ++t)
      for (int64_t n = 0; n < depth; ++n)
        for (int64_t p = 0; p < width; ++p)
          out.values[headRow(b, static_cast<int64_t>(t), h) * width + p] +=
              steps[t].after[n * width + p] * query(b, static_cast<int64_t>(t), h)[n];
  }

  Operands x;
  const Runs runs;
  const int64_t seq, depth, width, group, groups, batch;
  const bool hasDelta, isByColumn;

private:
  const Tensor *visibleFrom;
};

/// Returns the runs of a recurrence. Each run of a split sequence has one entry in the gathered borders.
template <typename Op> Runs runsOf(Op op, Operands x, const Tensor *borders, const EvalContext &context) {
  int64_t positions = x[0]->shape()[1];
  if constexpr (std::is_same_v<Op, model::RecurrenceOp> || std::is_same_v<Op, model::RecurrenceGradOp>)
    return Runs(positions);
  else
    return Runs(op, positions, borders->shape()[1] * (positions / runsOnRank(op)), context);
}

template <typename Op>
void evalForward(Op op, Operands x, const Tensor *borders, const EvalContext &context, Tensor &out) {
  Heads heads(op, x, op.getVisibleFrom() ? x.back() : nullptr, runsOf(op, x, borders, context));
  heads.forEach([&](int64_t b, int64_t h) { heads.read(heads.steps(b, h, borders), b, h, out); });
}

void evalRecurrence(model::RecurrenceOp op, Operands x, const EvalContext &context, Tensor &out) {
  evalForward(op, x, /*borders=*/nullptr, context, out);
}

void evalShardRecurrence(model::ShardRecurrenceOp op, Operands x, const EvalContext &context, Tensor &out) {
  evalForward(op, x, x[5], context, out);
}

/// Returns the number of a sample's tokens, which padding follows.
int64_t tokensOf(const Tensor &positions, int64_t sample) {
  int64_t seq = positions.shape()[1], count = 0;
  while (count < seq && positions.values[sample * seq + count] >= 0)
    ++count;
  return count;
}

Results evalCarriedRecurrence(model::CarriedRecurrenceOp op, Operands x, EvalContext &) {
  Heads heads(op, x, /*visibleFrom=*/nullptr, Runs(x[0]->shape()[1]));
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
    std::vector<Step> steps = heads.steps(b, h, state, 0, tokens);
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

/// Computes the gradients. A shard has `borders` and `ends` of all runs.
template <typename Op>
std::vector<Tensor> evalBackward(Op op, Operands x, const Tensor *borders, const Tensor *ends,
                                 const EvalContext &context) {
  Heads heads(op, x, op.getVisibleFrom() ? x.back() : nullptr, runsOf(op, x, borders, context));
  std::vector<Tensor> results;
  for (Type type : op->getResultTypes())
    results.emplace_back(cast<RankedTensorType>(type));
  heads.forEach([&](int64_t b, int64_t h) {
    std::vector<Step> steps = heads.steps(b, h, borders);
    const Runs &runs = heads.runs;
    for (int64_t run = 0; run < runs.count; ++run) {
      std::vector<double> dState(heads.depth * heads.width);
      for (int64_t number = runs.whole / runs.length - 1; ends && number > runs.number(run); --number)
        dState = heads.passed(dState, *borders, ends, b, number, h);
      for (int64_t t = (run + 1) * runs.length - 1; t >= run * runs.length; --t)
        differentiateStep(heads, steps[t], &x[5]->values[heads.headRow(b, t, h) * heads.width], b, t, h, dState,
                          results);
    }
  });
  return results;
}

Results evalRecurrenceGrad(model::RecurrenceGradOp op, Operands x, EvalContext &context) {
  return evalBackward(op, x, nullptr, nullptr, context);
}

Results evalShardRecurrenceGrad(model::ShardRecurrenceGradOp op, Operands x, EvalContext &context) {
  return evalBackward(op, x, x[6], x[7], context);
}

/// Computes A and B by a recurrence of the columns of v, from a state of zeros, and of further columns whose values are
/// zeros, from a state of ones on the diagonal. A of a recurrence without delta has only its diagonal.
void evalShardStates(model::ShardStatesOp op, Operands x, const EvalContext &context, Tensor &result) {
  int64_t positions = x[0]->shape()[1];
  Heads heads(op, x, op.getVisibleFrom() ? x.back() : nullptr,
              Runs(op, positions, static_cast<int64_t>(op.getWhole()), context));
  std::vector<Tensor> gradients;
  for (unsigned i : {0, 1, 2, 3, 4})
    gradients.emplace_back(cast<RankedTensorType>(op->getOperand(i).getType()));
  int64_t size = heads.depth * heads.width, columns = result.shape().back();
  heads.forEach([&](int64_t b, int64_t h) {
    for (int64_t run = 0; run < heads.runs.count; ++run) {
      int64_t begin = run * heads.runs.length, end = begin + heads.runs.length;
      double *terms =
          &result.values[((b * heads.runs.count + run) * heads.groups * heads.group + h) * heads.depth * columns];
      std::vector<Step> steps = heads.steps(b, h, std::vector<double>(size), begin, end);
      if (op.getBackward()) { // C does not depend on the states
        std::vector<double> dState(size);
        for (int64_t t = end - 1; t >= begin; --t)
          differentiateStep(heads, steps[t - begin], &x[2]->values[heads.headRow(b, t, h) * heads.width], b, t, h,
                            dState, gradients);
        llvm::copy(dState, terms);
        continue;
      }
      for (int64_t n = 0; n < heads.depth; ++n)
        for (int64_t p = 0; p < heads.width; ++p)
          terms[n * columns + p] = steps.back().after[n * heads.width + p];
      for (int64_t m = 0; m < (heads.hasDelta ? heads.depth : 1); ++m) {
        std::vector<double> column(heads.depth, heads.hasDelta ? 0.0 : 1.0); // column m of A
        column[m] = 1;
        for (int64_t t = begin; t < end; ++t) {
          double product = 0;
          for (int64_t n = 0; n < heads.depth; ++n) {
            column[n] *= heads.fade(b, t, h, n);
            product += heads.hasDelta ? column[n] * heads.key(b, t, h)[n] : 0;
          }
          for (int64_t n = 0; n < heads.depth; ++n)
            column[n] -= heads.key(b, t, h)[n] * heads.beta(b, t, h) * product;
        }
        for (int64_t n = 0; n < heads.depth; ++n)
          terms[n * columns + heads.width + m] = column[n];
      }
    }
  });
}

void evalShardEdges(model::ShardEdgesOp op, Operands x, const EvalContext &context, Tensor &result) {
  int64_t positions = x[0]->shape()[1], kept = result.shape()[1];
  Runs runs(op, positions, positions, context);
  int64_t row = static_cast<int64_t>(x[0]->values.size()) / (x[0]->shape()[0] * positions), ofRun = kept / runs.count;
  for (int64_t to = 0; to < x[0]->shape()[0] * kept; ++to) {
    int64_t t = to % kept, from = t / ofRun * runs.length + t % ofRun + (op.getFirst() ? 0 : runs.length - ofRun);
    std::copy_n(&x[0]->values[(to / kept * positions + from) * row], row, &result.values[to * row]);
  }
}

int64_t channelsOf(const Tensor &x) { return static_cast<int64_t>(x.values.size()) / (x.shape()[0] * x.shape()[1]); }

/// A convolution over the sequences of which x has all positions or the runs of this rank.
class Convolution {
public:
  Convolution(const Tensor &x, const Tensor *visibleFrom, int64_t taps, bool isTransposed)
      : x(x), visibleFrom(visibleFrom), taps(taps), isTransposed(isTransposed), channels(channelsOf(x)),
        seq(x.shape()[1]), runs(seq) {}

  /// Goes over a shard: x has the runs of this rank, `edges` and `limits` what is kept of all runs.
  template <typename Op> void useShard(Op op, const Tensor *edges, const Tensor *limits, const EvalContext &context) {
    runs = Runs(op, seq, seq, context);
    parts = {edges, limits};
    kept = std::min(taps - 1, runs.length);
    runs.whole = edges->shape()[1] / kept * runs.length;
  }

  /// Calls visit(output row, input channels, tap) for all terms of the convolution, or of the transposed one.
  void forEachTerm(llvm::function_ref<void(int64_t, const double *, int64_t)> visit) const {
    for (int64_t row = 0; row < x.shape()[0] * seq; ++row)
      for (int64_t i = 0; i < taps; ++i) {
        int64_t at = runs.position(row % seq), other = isTransposed ? at + i : at - i;
        if (other < 0 || other >= runs.whole)
          continue;
        int64_t reader = std::max(at, other); // of the two positions
        double begin = visibleFrom ? from(*visibleFrom, 1, row / seq, reader)[0] : 0;
        if (static_cast<double>(std::min(at, other)) >= std::min(begin, static_cast<double>(reader)))
          visit(row, from(x, 0, row / seq, other), taps - 1 - i);
      }
  }

private:
  /// Returns the elements at a position of the whole sequence, of this rank or of the edges in `part`.
  const double *from(const Tensor &local, size_t part, int64_t sample, int64_t position) const {
    int64_t count = channelsOf(local), number = position / runs.length, within = position % runs.length;
    for (int64_t run = 0; run < runs.count; ++run)
      if (runs.number(run) == number)
        return &local.values[(sample * seq + run * runs.length + within) * count];
    int64_t edge = number * kept + within - (isTransposed ? 0 : runs.length - kept);
    return &parts[part]->values[(sample * parts[part]->shape()[1] + edge) * count];
  }

  const Tensor &x;
  const Tensor *visibleFrom;
  std::vector<const Tensor *> parts;
  int64_t taps;
  bool isTransposed;

public:
  const int64_t channels;

private:
  int64_t seq, kept = 0; ///< `kept` edges of each run
  Runs runs;
};

void convolve(const Convolution &convolution, const Tensor &weight, Tensor &y) {
  int64_t taps = weight.shape().back();
  convolution.forEachTerm([&](int64_t output, const double *input, int64_t tap) {
    for (int64_t c = 0; c < convolution.channels; ++c)
      y.values[output * convolution.channels + c] += weight.values[c * taps + tap] * input[c];
  });
}

void evalCausalConv(model::CausalConvOp op, Operands x, const EvalContext &, Tensor &y) {
  convolve({*x[0], op.getVisibleFrom() ? x.back() : nullptr, x[1]->shape().back(), op.getTransposed()}, *x[1], y);
}

void evalShardConv(model::ShardConvOp op, Operands x, const EvalContext &context, Tensor &y) {
  Convolution convolution(*x[0], x.size() > 3 ? x[3] : nullptr, x[1]->shape().back(), op.getTransposed());
  convolution.useShard(op, x[2], x.size() > 4 ? x[4] : nullptr, context);
  convolve(convolution, *x[1], y);
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

void addTerms(const Convolution &convolution, const Tensor &cotangent, Tensor &gradient) {
  int64_t taps = gradient.shape().back();
  convolution.forEachTerm([&](int64_t output, const double *input, int64_t tap) {
    for (int64_t c = 0; c < convolution.channels; ++c)
      gradient.values[c * taps + tap] += input[c] * cotangent.values[output * convolution.channels + c];
  });
}

void evalCausalConvGrad(model::CausalConvGradOp op, Operands x, const EvalContext &, Tensor &gradient) {
  addTerms({*x[0], op.getVisibleFrom() ? x.back() : nullptr, gradient.shape().back(), /*isTransposed=*/false}, *x[1],
           gradient);
}

void evalShardConvGrad(model::ShardConvGradOp op, Operands x, const EvalContext &context, Tensor &gradient) {
  Convolution convolution(*x[0], op.getVisibleFrom() ? x.back() : nullptr, gradient.shape().back(),
                          /*isTransposed=*/false);
  convolution.useShard(op, x[2], /*limits=*/nullptr, context);
  addTerms(convolution, *x[1], gradient);
}

} // namespace

void addRecurrences(EvaluatorTable &table) {
  table.add(evalRecurrence);
  table.add(evalRecurrenceGrad);
  table.add(evalCarriedRecurrence);
  table.add(evalShardStates);
  table.add(evalShardRecurrence);
  table.add(evalShardRecurrenceGrad);
  table.add(evalShardEdges);
  table.add(evalShardConv);
  table.add(evalShardConvGrad);
  table.add(evalCausalConv);
  table.add(evalCarriedConv);
  table.add(evalCausalConvGrad);
}

} // namespace espalier
