// Each add* writes the terms of one piece of a layer. T tokens on a rank, h hidden, f ffn, a heads, g key-value heads,
// d head size, V vocabulary, t tensor ranks. Activations have two bytes per element.
#include "test/planner/shape_problem.h"

#include "planner/model/segment.h"

#include <optional>

namespace espalier::planner {

namespace {

Monomial operator*(Monomial a, const Monomial &b) {
  a.coefficient *= b.coefficient;
  a.powers.insert(a.powers.end(), b.powers.begin(), b.powers.end());
  return a;
}

Monomial operator*(double factor, Monomial a) {
  a.coefficient *= factor;
  return a;
}

Monomial operator/(Monomial a, const Monomial &b) {
  a.coefficient /= b.coefficient;
  for (const Power &power : b.powers)
    a.powers.push_back({power.symbol, -power.exponent});
  return a;
}

Monomial symbol(int index) { return {1, {{index, 1}}}; }
Monomial symbol(Axis axis) { return symbol(static_cast<int>(axis)); }

// The terms of one layer and one pattern, written operation by operation. `sp` and `zero` are the pattern's.
class TermWriter {
protected:
  TermWriter(const ModelShape &shape, const System &system, bool sp, int zero)
      : shape(shape), system(system), sp(sp), zero(zero) {
    terms.pattern.sequenceParallel = sp;
    terms.pattern.zero = zero;
    stream = sp ? T * h / t : T * h;
  }

  // Returns the terms, with activations scaled to what the allocator holds. A phase has one position: a collective
  // that overlaps with compute overlaps with all compute of its phase.
  PatternTerms allocated() {
    for (ComputeTerm &term : terms.compute)
      term.position = static_cast<int>(term.phase);
    orderTerms(terms);
    for (std::array<Size, 3> *sizes : {&terms.savedBytes, &terms.forwardPeakBytes, &terms.backwardPeakBytes})
      for (Size &size : *sizes)
        for (Monomial &part : size)
          part.coefficient *= system.allocatedShare;
    return std::move(terms);
  }

  void compute(ComputeTerm term, bool selective, bool full) {
    term.recomputedSelective = selective;
    term.recomputedFull = full;
    terms.compute.push_back(std::move(term));
  }

  // y[T, n] = x[T, k] w[k, n]: forward, gradient of x, gradient of w. The product or a separate kernel adds the
  // gradient of w to the accumulator.
  void matmul(const std::string &name, const Size &n, Monomial k, bool selective, bool full) {
    bool fused = system.accumulationBytes == 0;
    Size bytes = {2 * (T * k)}, gradient = bytes;
    ComputeTerm accumulation;
    accumulation.name = name + " accumulation";
    accumulation.phase = Phase::Weight;
    for (const Monomial &part : n) {
      bytes.insert(bytes.end(), {2 * (k * part), 2 * (T * part)});
      gradient.insert(gradient.end(), {2 * (T * part), (fused ? 2 * system.gradientBytes : 2) * (k * part)});
      accumulation.bytes.push_back(system.accumulationBytes * (k * part));
    }
    if (!fused)
      compute(std::move(accumulation), false, false);
    compute({name, ComputeClass::MatMul, Phase::Forward, {T}, n, {k}, {one}, {}, bytes}, selective, full);
    compute({name, ComputeClass::MatMul, Phase::Backward, {T}, {k}, n, {one}, {}, bytes}, false, false);
    compute({name, ComputeClass::MatMul, Phase::Weight, {k}, n, {T}, {one}, {}, gradient}, false, false);
  }

  void elementwise(const std::string &name, Monomial elements, double forwardBytes, double backwardBytes,
                   bool selective, bool full = true) {
    double share = system.elementwiseShare;
    compute({name, ComputeClass::Memory, Phase::Forward, {}, {}, {}, {}, {}, {share * forwardBytes * elements}},
            selective, full);
    compute({name, ComputeClass::Memory, Phase::Backward, {}, {}, {}, {}, {}, {share * backwardBytes * elements}},
            false, false);
  }

  void addCollective(const std::string &name, CollectiveKind kind, Phase phase, bool hide, bool full) {
    pushCollective({name, kind, Axis::Tp, phase, {2 * (T * h)}, 1, false, full}, hide || system.hidesTensor);
  }
  void pushCollective(CollectiveTerm term, bool isBesideCompute) {
    term.start = static_cast<int>(term.phase);
    term.wait = term.start + (isBesideCompute ? 1 : 0);
    terms.collectives.push_back(std::move(term));
  }
  void forwardCollective(const std::string &name, CollectiveKind kind, bool full) {
    addCollective(name, kind, Phase::Forward, false, full);
  }
  void backwardCollective(const std::string &name, CollectiveKind kind) {
    addCollective(name, kind, Phase::Backward, false, false);
  }
  void collective(const std::string &name, CollectiveKind forward, CollectiveKind backward, bool full) {
    forwardCollective(name, forward, full);
    backwardCollective(name, backward);
  }

  // Enters a column-row pair of matrix products (Korthikanti 2022, section 4.2.2). With sequence parallelism the
  // gathered input is not kept. It is gathered again for the weight gradient, beside compute.
  void enterPair(const std::string &name) {
    bool beside = system.hidesInputGradients;
    addCollective(name, sp ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce,
                  beside ? Phase::Weight : Phase::Backward, beside, false);
    if (!sp)
      return;
    forwardCollective(name, CollectiveKind::AllGather, true);
    if (!system.keepsGatheredInputs)
      addCollective(name, CollectiveKind::AllGather, beside ? Phase::Backward : Phase::Weight, true, false);
  }
  void leavePair(const std::string &name, bool full = true) {
    if (!sp)
      return forwardCollective(name, CollectiveKind::AllReduce, full);
    collective(name, CollectiveKind::ReduceScatter, CollectiveKind::AllGather, full);
  }

  void addParameters(const std::string &name, const std::vector<Monomial> &elements, bool tied, bool reduced) {
    ParameterTerm term;
    term.name = name;
    term.elements = elements;
    term.parameterBytes = system.parameterBytes;
    term.gradientBytes = system.gradientBytes;
    term.optimizerBytes = system.optimizerBytes;
    term.tied = tied;
    term.unshardedShare = system.gatheredShare;
    for (const Monomial &part : elements)
      terms.stepBytes.push_back(system.updateBytes * share(part));
    if (reduced) {
      addOptimizer(name, elements);
      addReduction(name, elements);
    }
    terms.parameters.push_back(std::move(term));
  }

  void addOptimizer(const std::string &name, const std::vector<Monomial> &elements) {
    double reread = system.parameterBytes < 4 ? 4 : 0; // the master weight that the parameter is cast from
    double each =
        2 * system.optimizerBytes + system.gradientPasses * system.gradientBytes + system.parameterBytes + reread;
    ComputeTerm update;
    update.name = name + " update";
    update.phase = Phase::Step;
    for (const Monomial &part : elements)
      update.bytes.push_back(each * share(part));
    compute(std::move(update), false, false);
  }

  // Returns the part of the parameters that a rank updates.
  Monomial share(const Monomial &part) const { return zero >= 1 ? part / symbol(Axis::Dp) / symbol(Axis::Cp) : part; }

  void reduction(const std::string &name, CollectiveKind kind, Phase phase, const std::vector<Monomial> &elements,
                 double bytes, bool hide) {
    CollectiveTerm term;
    term.name = name;
    term.kind = kind;
    term.axis = Axis::Dp;
    term.phase = phase;
    for (const Monomial &part : elements)
      term.bytes.push_back(bytes * part);
    term.besideLastBackward = hide && phase == Phase::Step;
    pushCollective(std::move(term), hide && phase != Phase::Step);
  }

  // ZeRO-3 communicates parameters and gradients in every micro-batch, other stages once per step.
  void addReduction(const std::string &name, const std::vector<Monomial> &elements) {
    if (zero == 3) {
      bool hide = system.hidesParameters;
      reduction(name + " gather", CollectiveKind::AllGather, Phase::Forward, elements, system.parameterBytes, hide);
      reduction(name + " gather", CollectiveKind::AllGather, Phase::Backward, elements, system.parameterBytes, hide);
      reduction(name + " reduce", CollectiveKind::ReduceScatter, Phase::Weight, elements, system.parameterBytes, hide);
      return;
    }
    reduction(name + " reduce", zero == 0 ? CollectiveKind::AllReduce : CollectiveKind::ReduceScatter, Phase::Step,
              elements, system.reducedBytes > 0 ? system.reducedBytes : system.gradientBytes, system.hidesGradients);
    if (zero >= 1)
      reduction(name + " gather", CollectiveKind::AllGather, Phase::Step, elements, system.parameterBytes, false);
  }

  const ModelShape &shape;
  const System &system;
  bool sp;
  int zero;
  PatternTerms terms;
  Monomial one{1, {}};
  Monomial t = symbol(Axis::Tp), b = symbol(kBatchSymbol) / symbol(Axis::Dp);
  Monomial s = symbol(kFirstDimension), h = symbol(kFirstDimension + 1), f = symbol(kFirstDimension + 2),
           a = symbol(kFirstDimension + 3), kv = symbol(kFirstDimension + 4), d = symbol(kFirstDimension + 5),
           V = symbol(kFirstDimension + 6);
  Monomial T = b * s / symbol(Axis::Cp);
  Monomial stream; ///< elements of the stream on a rank
};

// Builds the terms of one layer.
class LayerTerms : TermWriter {
public:
  LayerTerms(const ModelShape &shape, const System &system, bool sp, int zero) : TermWriter(shape, system, sp, zero) {}

  PatternTerms block() {
    addAttention();
    addFeedForward();
    addParameters("layer", layerElements(), /*tied=*/false, /*reduced=*/true);
    addSavedBytes();
    return allocated();
  }

  PatternTerms embedding() {
    elementwise("embedding", stream, 4, 8, false);
    if (sp)
      collective("embedding", CollectiveKind::ReduceScatter, CollectiveKind::AllGather, false);
    else
      forwardCollective("embedding", CollectiveKind::AllReduce, false);
    std::vector<Monomial> elements = {V * h / t};
    if (!shape.rotary)
      elements.push_back(s * h);
    addParameters("embedding", elements, false, true);
    // Dropout mask and token ids.
    terms.savedBytes.fill({(shape.dropout ? 1.0 : 0.0) * stream, 8 * T});
    return allocated();
  }

  PatternTerms head() {
    elementwise("final norm", stream, 4, 8, false);
    if (sp)
      collective("head", CollectiveKind::AllGather, CollectiveKind::ReduceScatter, false);
    else
      backwardCollective("head", CollectiveKind::AllReduce);
    matmul("logits", {V / t}, h, false, false);
    // f32 logits: cast, max, exponent and sum, division; backward subtracts one and casts back.
    elementwise("cross entropy", T * V / t, 20, 8, false);
    addParameters("head", {V * h / t}, shape.tied, !shape.tied);
    Monomial logits = T * V / t;
    terms.savedBytes.fill({4 * logits, 2 * (T * h), 2 * stream});
    double transient = system.lossBytes - 4; // in addition to the f32 logits
    terms.forwardPeakBytes.fill({transient * logits});
    terms.backwardPeakBytes.fill({transient * logits, 2 * (T * h)});
    return allocated();
  }

private:
  bool slicesInputs() const { return system.slicesInputs && !sp; }

  void addAttention() {
    bool keepsNorm = !system.fusedAttention; // selective recompute of the unfused system repeats only the core
    elementwise("norm", stream, 4, 8, !keepsNorm);
    if (slicesInputs())
      addCollective("kept input", CollectiveKind::AllGather, Phase::Recompute, false, true);
    enterPair("attention input");
    matmul("qkv", {a * d / t, 2 * (kv * d / t)}, h, false, true);
    if (shape.rotary)
      elementwise("rotary", T * a * d / t, 4, 4, true);
    // Context parallelism: keys and values come from all ranks, and their gradients return. A ring hides both.
    Size keys = {4 * (b * s * kv * d / t)};
    auto exchange = [&](CollectiveKind kind, Phase phase) {
      pushCollective({"keys and values", kind, Axis::Cp, phase, keys}, /*isBesideCompute=*/true);
    };
    exchange(CollectiveKind::AllGather, Phase::Forward);
    exchange(CollectiveKind::AllGather, Phase::Backward);
    exchange(CollectiveKind::ReduceScatter, Phase::Backward);
    if (system.fusedAttention)
      addFusedAttention();
    else
      addUnfusedAttention();
    matmul("projection", {h}, a * d / t, system.repeatsSecondProducts, true);
    leavePair("attention output");
    elementwise("residual", stream, shape.dropout ? 7 : 6, shape.dropout ? 5 : 2, !keepsNorm);
  }

  // One kernel. Causal masking halves the products. Backward does five products where forward does two.
  void addFusedAttention() {
    Monomial operations = 2 * (T * s * a * d / t);
    Monomial io = 8 * (T * a * d / t);
    compute({"attention", ComputeClass::Attention, Phase::Forward, {}, {}, {}, {}, {operations}, {io}}, false, true);
    compute({"attention", ComputeClass::Attention, Phase::Backward, {}, {}, {}, {}, {2.5 * operations}, {2 * io}},
            false, false);
  }

  void addUnfusedAttention() {
    Monomial count = b * a / t, local = s / symbol(Axis::Cp);
    auto product = [&](const std::string &name, Monomial m, Monomial n, Monomial k, Phase phase, double times) {
      Size bytes = {2 * times * (count * m * k), 2 * times * (count * k * n), 2 * times * (count * m * n)};
      bool forward = phase == Phase::Forward;
      compute({name, ComputeClass::MatMul, phase, {m}, {n}, {k}, {times * count}, {}, bytes}, forward, forward);
    };
    product("scores", local, s, d, Phase::Forward, 1);
    elementwise("softmax", count * local * s, 4, 6, true);
    if (shape.dropout)
      elementwise("attention dropout", count * local * s, 5, 5, true);
    product("context", local, d, s, Phase::Forward, 1);
    product("scores gradient", local, d, s, Phase::Backward, 2);
    product("context gradient", local, s, d, Phase::Backward, 1);
    product("value gradient", s, d, local, Phase::Backward, 1);
  }

  void addFeedForward() {
    bool keepsNorm = !system.fusedAttention;
    elementwise("norm", stream, 4, 8, !keepsNorm);
    enterPair("ffn input");
    if (shape.gated && system.repeatsSecondProducts) {
      matmul("gate", {f / t}, h, false, true);
      matmul("up", {f / t}, h, true, true);
    } else {
      matmul("ffn in", {(shape.gated ? 2.0 : 1.0) * (f / t)}, h, false, true);
    }
    elementwise("activation", T * f / t, shape.gated ? 6 : 4, shape.gated ? 10 : 6, !keepsNorm);
    bool repeated = !system.stopsRecomputeEarly;
    matmul("ffn out", {h}, f / t, false, repeated);
    leavePair("ffn output", repeated);
    elementwise("residual", stream, shape.dropout ? 7 : 6, shape.dropout ? 5 : 2, repeated && !keepsNorm, repeated);
  }

  std::vector<Monomial> layerElements() const {
    return {(shape.gated ? 3.0 : 2.0) * (h * f / t), 2 * (h * a * d / t), 2 * (h * kv * d / t), 4 * h};
  }

  void addSavedBytes() {
    // Inputs of norms and of matrix products, dropout masks of one byte; q, k and v; the attention context.
    double in = system.productInputBytes;
    Monomial mask = (shape.dropout ? 2.0 : 0.0) * stream;
    Size inputs = {4 * stream, 2 * in * (system.keepsGatheredInputs ? T * h : stream), mask};
    Size core = {2 * (T * a * d / t), 4 * (T * kv * d / t), in * (T * a * d / t)};
    Size activation = {(shape.gated ? 4.0 : 2.0) * (T * f / t)}, activated = {in * (T * f / t)};
    Size scores;
    if (!system.fusedAttention)
      scores = {(shape.dropout ? 5.0 : 2.0) * (b * a * (s / symbol(Axis::Cp)) * s / t)};
    auto join = [](std::initializer_list<Size> parts) {
      Size all;
      for (const Size &part : parts)
        all.insert(all.end(), part.begin(), part.end());
      return all;
    };
    terms.savedBytes[0] = join({inputs, core, activation, activated, scores});
    terms.savedBytes[1] = system.fusedAttention ? join({{4 * stream, mask}, core, activation})
                                                : join({inputs, core, activation, activated});
    // Results of reduce-scatters are kept too: of attention, and of the last product if it is kept.
    Size outputs = {(sp ? 2.0 : 0.0) * stream};
    if (system.keepsLastProduct)
      outputs.insert(outputs.end(), {2 * (T * h), (sp ? 2.0 : 0.0) * stream});
    if (system.repeatsSecondProducts)
      terms.savedBytes[1] = join({{2 * stream, 4 * (T * a * d / t), 2 * (T * kv * d / t), 2 * (T * f / t)}, outputs});
    terms.savedBytes[2] = {slicesInputs() ? 2 * (stream / t) : 2 * stream};
    // Gradients of the widest values during backward. Values that were not kept are recomputed first.
    Size gradients = {2 * (T * f / t), (shape.gated ? 4.0 : 2.0) * (T * f / t), 4 * (T * h)};
    Size wide = {(shape.gated ? 4.0 : 2.0) * (T * f / t), 4 * (T * h)};
    Size again = join({scores, system.fusedAttention ? join({activated, {4 * stream}}) : Size{}});
    terms.forwardPeakBytes.fill(wide);
    terms.backwardPeakBytes = {gradients, join({gradients, again}), join({gradients, terms.savedBytes[0]})};
  }
};

} // namespace

double shapeParameters(const ModelShape &shape) {
  double h = static_cast<double>(shape.hidden), head = h / static_cast<double>(shape.heads);
  double attention = 2 * h * h + 2 * h * head * static_cast<double>(shape.kvHeads);
  double ffn = (shape.gated ? 3.0 : 2.0) * h * static_cast<double>(shape.ffn);
  double tables = static_cast<double>(shape.vocab) * h * (shape.tied ? 1 : 2);
  return shape.layers * (attention + ffn + 4 * h) + tables + (shape.rotary ? 0 : static_cast<double>(shape.seq) * h);
}

System monitored(System system) {
  system.optimizerBytes += system.updateBytes;
  system.updateBytes = 0;
  system.lossBytes += system.cachedLossBytes;
  system.cachedLossBytes = 0;
  return system;
}

System needed(System system) {
  system.allocatedShare = 1;
  return system;
}

Problem shapeProblem(const ModelShape &shape, const System &system, const Machine &machine, int64_t globalBatch,
                     const Plan *only) {
  Problem problem;
  problem.name = system.name;
  problem.dimensions = {{"seq", shape.seq},     {"hidden", shape.hidden},    {"ffn", shape.ffn},
                        {"heads", shape.heads}, {"kv_heads", shape.kvHeads}, {"head_dim", shape.hidden / shape.heads},
                        {"vocab", shape.vocab}};
  problem.kinds = {{"embed", {}}, {"block", {}}, {"head", {}}};
  for (bool sp : {false, true})
    for (int zero = 0; zero <= 3; ++zero) {
      if (only && (only->sequenceParallel != sp || only->zero != zero))
        continue;
      problem.kinds[0].patterns.push_back(LayerTerms(shape, system, sp, zero).embedding());
      problem.kinds[1].patterns.push_back(LayerTerms(shape, system, sp, zero).block());
      problem.kinds[2].patterns.push_back(LayerTerms(shape, system, sp, zero).head());
    }
  problem.embed = 0;
  problem.head = 2;
  problem.layers = {{1, shape.layers}};
  Monomial tokens = symbol(kBatchSymbol) * symbol(kFirstDimension) / symbol(Axis::Dp) / symbol(Axis::Cp);
  problem.boundaryBytes = {2 * (tokens * symbol(kFirstDimension + 1))};
  problem.boundaryScatters = system.scattersBoundary;
  problem.limits = {{"heads", shape.heads, Axis::Tp},
                    {"kv_heads", shape.kvHeads, Axis::Tp},
                    {"ffn", shape.ffn, Axis::Tp},
                    {"seq", shape.seq, Axis::Tp, 1, true},
                    {"seq", shape.seq, Axis::Cp, 2}};
  problem.globalBatch = globalBatch;
  problem.tokensPerSample = shape.seq;
  problem.parameters = shapeParameters(shape);
  double s = static_cast<double>(shape.seq), h = static_cast<double>(shape.hidden);
  double products = problem.parameters - (shape.rotary ? 0 : s * h) - (shape.tied ? 0 : shape.vocab * h);
  problem.modelFlops = 6 * s * products + 12.0 * shape.layers * s * s * h;
  problem.tiedEmbedding = shape.tied;
  problem.tiedBytes = {system.gradientBytes *
                       (symbol(kFirstDimension + 6) * symbol(kFirstDimension + 1) / symbol(Axis::Tp))};
  problem.machine = machine;
  return problem;
}

} // namespace espalier::planner
