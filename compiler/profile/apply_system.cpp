// Each function changes one property of one pattern. All work on terms that the compiler read from its own programs, so
// that no size of a model is stated here.
#include "compiler/profile/apply_system.h"

#include "compiler/profile/read_sizes.h"
#include "planner/model/segment.h"

#include <algorithm>

namespace espalier {

namespace {

using planner::Axis;
using planner::CollectiveKind;
using planner::CollectiveTerm;
using planner::ComputeClass;
using planner::ComputeTerm;
using planner::Monomial;
using planner::ParameterTerm;
using planner::PatternTerms;
using planner::Phase;
using planner::Recompute;
using planner::Size;

constexpr double halfBytes = 2; // of the values in stored attention

void addAll(Size &sum, const Size &parts, double factor = 1) {
  for (const Monomial &part : parts)
    add(sum, scaled(part, factor));
}

ComputeTerm memoryTerm(const std::string &name, Phase phase, Size bytes) {
  ComputeTerm term;
  term.name = name;
  term.phase = phase;
  term.bytes = std::move(bytes);
  return term;
}

bool isGradient(const CollectiveTerm &term) { return term.axis == Axis::Dp && term.kind != CollectiveKind::AllGather; }

/// The score matrices of one layer: `count` matrices of m x n, from vectors of `depth`.
struct Scores {
  Monomial m, n, depth, count;
  Size elements() const { return {product(product(m, n), count)}; }
};

/// Returns the scores of a forward attention, whose first monomial of operations is 4 m n depth count. Returns nothing
/// if the model lacks the dimensions.
std::optional<Scores> scoresOf(const ComputeTerm &attention, const planner::Problem &problem) {
  Scores scores{{1, {}}, {1, {}}, {1, {}}, attention.operations.front()};
  double sizes = 4;
  for (auto [name, target, times] : {std::tuple("seq", &scores.n, 2), std::tuple("head_dim", &scores.depth, 1)}) {
    auto found = std::ranges::find(problem.dimensions, std::string(name), &planner::Dimension::name);
    if (found == problem.dimensions.end())
      return std::nullopt;
    auto symbol = planner::kFirstDimension + static_cast<int>(found - problem.dimensions.begin());
    *target = {1, {{symbol, 1}}};
    for (int i = 0; i < times; ++i)
      sizes *= static_cast<double>(found->size);
  }
  Monomial contextShare{1, {{static_cast<int>(Axis::Cp), -1}}};
  scores.m = product(scores.n, contextShare);
  scores.count = product(scaled(scores.count, 1 / sizes), {1, {{static_cast<int>(Axis::Cp), 1}}});
  return scores;
}

ComputeTerm scoreProduct(const Scores &scores, const Monomial &m, const Monomial &n, const Monomial &k, double times) {
  ComputeTerm term;
  term.name = "scores";
  term.kind = ComputeClass::MatMul;
  term.m = {m}, term.n = {n}, term.k = {k}, term.count = {scaled(scores.count, times)};
  for (const Monomial &matrix : {product(m, k), product(k, n), product(m, n)})
    add(term.bytes, scaled(product(matrix, scores.count), times * halfBytes));
  return term;
}

/// Returns the kernels that replace a fused attention. Dropout of the scores reads and writes them once more.
std::vector<ComputeTerm> storedAttention(const ComputeTerm &fused, const Scores &scores, bool isForward,
                                         bool dropsScores) {
  const auto &[m, n, depth, count] = scores;
  constexpr double dropout = 5, softmax = 4, softmaxGradient = 6;
  double bytes = (isForward ? softmax : softmaxGradient) + (dropsScores ? dropout : 0);
  Size traffic;
  addAll(traffic, scores.elements(), bytes);
  std::vector<ComputeTerm> terms = {memoryTerm("softmax", fused.phase, traffic)};
  if (isForward)
    for (const ComputeTerm &term : {scoreProduct(scores, m, n, depth, 1), scoreProduct(scores, m, depth, n, 1)})
      terms.push_back(term);
  else
    for (const ComputeTerm &term : {scoreProduct(scores, m, n, depth, 1), scoreProduct(scores, m, depth, n, 1),
                                    scoreProduct(scores, n, depth, m, 2)})
      terms.push_back(term);
  for (ComputeTerm &term : terms) {
    term.phase = fused.phase;
    term.position = fused.position;
    term.recomputedSelective = fused.recomputedSelective;
    term.recomputedFull = fused.recomputedFull;
  }
  return terms;
}

void storeScores(const SystemStorage &storage, const planner::Problem &problem, PatternTerms &pattern) {
  auto first = std::ranges::find_if(pattern.compute, [](const ComputeTerm &term) {
    return term.kind == ComputeClass::Attention && term.phase == Phase::Forward;
  });
  if (first == pattern.compute.end())
    return;
  std::optional<Scores> scores = scoresOf(*first, problem);
  if (!scores)
    return;
  std::vector<ComputeTerm> compute;
  for (const ComputeTerm &term : pattern.compute)
    if (term.kind != ComputeClass::Attention)
      compute.push_back(term);
    else
      for (ComputeTerm &part : storedAttention(term, *scores, term.phase != Phase::Backward, storage.dropsScores))
        compute.push_back(std::move(part));
  pattern.compute = std::move(compute);
  Size kept;
  addAll(kept, scores->elements(), storage.scoreBytes);
  addAll(pattern.savedBytes[Recompute::None], kept);
  if (storage.selective != SystemStorage::Selective::Attention)
    addAll(pattern.savedBytes[Recompute::Selective], kept);
  // Scores that are computed again live during backward.
  for (auto *peaks : {&pattern.workspaceBytes, &pattern.oneSampleWorkspaceBytes})
    for (Recompute policy : {Recompute::Selective, Recompute::Full})
      for (Size &peak : (*peaks)[policy])
        if (policy == Recompute::Full || storage.selective == SystemStorage::Selective::Attention)
          addAll(peak, kept);
}

/// Returns the forward terms that a policy repeats, as terms of Phase::Recompute.
ComputeTerm repeated(ComputeTerm term, bool isFull) {
  term.phase = Phase::Recompute;
  term.recomputedSelective = !isFull;
  term.recomputedFull = isFull;
  return term;
}

bool isForwardOf(const ComputeTerm &term, ComputeClass kind) {
  return term.phase == Phase::Forward && term.kind == kind;
}

/// Replaces the work that selective recompute repeats.
void selectRecompute(SystemStorage::Selective selective, PatternTerms &pattern) {
  using Selective = SystemStorage::Selective;
  bool hasAttention = std::ranges::any_of(
      pattern.compute, [](const ComputeTerm &term) { return isForwardOf(term, ComputeClass::Attention); });
  if (selective == Selective::Elementwise || !hasAttention)
    return;
  std::vector<ComputeTerm> again;
  Size kept = pattern.savedBytes[Recompute::Full]; // the incoming stream
  bool isSecond = false, isFirst = true;
  for (ComputeTerm &term : pattern.compute) {
    term.recomputedSelective = false;
    if (selective == Selective::Attention) {
      if (isForwardOf(term, ComputeClass::Attention))
        again.push_back(repeated(term, /*isFull=*/false));
      continue;
    }
    if (term.phase == Phase::Recompute && term.kind == ComputeClass::Memory && term.recomputedFull)
      again.push_back(repeated(term, /*isFull=*/false));
    if (!isForwardOf(term, ComputeClass::MatMul))
      continue;
    if (isSecond)
      again.push_back(repeated(term, /*isFull=*/false));
    else // its result is kept; attention's result has the size of the first one
      addAll(kept, {product(product(term.m.front(), term.n.front()), term.count.front())},
             halfBytes * (isFirst ? 2 : 1));
    isFirst = false;
    isSecond = !isSecond;
  }
  std::erase_if(pattern.compute, [](const ComputeTerm &term) {
    return term.phase == Phase::Recompute && !term.recomputedFull && !term.recomputedSelective;
  });
  for (CollectiveTerm &term : pattern.collectives)
    term.recomputedSelective = false;
  pattern.compute.insert(pattern.compute.end(), again.begin(), again.end());
  bool isAttention = selective == Selective::Attention;
  pattern.savedBytes[Recompute::Selective] = isAttention ? pattern.savedBytes[Recompute::None] : kept;
  Recompute like = isAttention ? Recompute::None : Recompute::Full;
  pattern.workspaceBytes[Recompute::Selective] = pattern.workspaceBytes[like];
  pattern.oneSampleWorkspaceBytes[Recompute::Selective] = pattern.oneSampleWorkspaceBytes[like];
}

/// Full recompute also repeats the last product, and the collectives that follow it.
void repeatLastProduct(PatternTerms &pattern) {
  bool repeats = std::ranges::any_of(pattern.compute, [](const ComputeTerm &term) { return term.recomputedFull; });
  auto last = std::ranges::find_if(pattern.compute.rbegin(), pattern.compute.rend(),
                                   [](const ComputeTerm &term) { return isForwardOf(term, ComputeClass::MatMul); });
  if (!repeats || last == pattern.compute.rend())
    return;
  int position = last->position;
  pattern.compute.push_back(repeated(*last, /*isFull=*/true));
  std::vector<CollectiveTerm> again;
  for (CollectiveTerm term : pattern.collectives)
    if (term.phase == Phase::Forward && term.axis == Axis::Tp && term.start > position) {
      term.phase = Phase::Recompute;
      term.recomputedFull = true;
      again.push_back(std::move(term));
    }
  pattern.collectives.insert(pattern.collectives.end(), again.begin(), again.end());
}

/// Scales stored and transferred bytes of trained parameters, and the traffic of the step. The profile has the bytes of
/// the run's gradients.
void storeParameters(const SystemStorage &storage, PatternTerms &pattern) {
  double profiledGradient = 0;
  Size accumulated, step;
  for (ParameterTerm &term : pattern.parameters) {
    if (term.isFrozen)
      continue;
    profiledGradient = term.gradientBytes;
    if (storage.gradientBytes > 0)
      term.gradientBytes = storage.gradientBytes;
    if (storage.optimizerBytes > 0)
      term.optimizerBytes = storage.optimizerBytes;
    term.unshardedShare = storage.unshardedShare;
    addAll(accumulated, term.elements, storage.accumulationBytes);
    for (Monomial part : term.elements) {
      constexpr double espalierPasses = 2; // norm and update
      if (pattern.pattern.zero.value_or(0) > 0)
        for (Axis axis : {Axis::Dp, Axis::Cp})
          part = product(part, {1, {{static_cast<int>(axis), -1}}});
      add(step, scaled(part, std::max(0.0, storage.gradientPasses - espalierPasses) * term.gradientBytes));
      int zero = pattern.pattern.zero.value_or(0);
      if (double bytes = storage.updateBytes + (zero == 1 || zero == 2 ? storage.flatUpdateBytes : 0); bytes > 0)
        add(pattern.stepBytes, scaled(part, bytes));
    }
  }
  if (storage.reducedBytes > 0)
    for (CollectiveTerm &term : pattern.collectives)
      if (isGradient(term))
        for (Monomial &part : term.bytes)
          part.coefficient *= storage.reducedBytes / profiledGradient;
  if (storage.accumulationBytes > 0)
    pattern.compute.push_back(memoryTerm("accumulation", Phase::Weight, accumulated));
  if (storage.gradientPasses > 0)
    pattern.compute.push_back(memoryTerm("gradients", Phase::Step, step));
}

/// Lets transfers over tp run beside the parts of their product: gathers beside the product that reads the gathered
/// values, reductions beside the one before them.
void splitProducts(PatternTerms &pattern) {
  auto program = [](Phase phase) { return phase == Phase::Weight ? Phase::Backward : phase; };
  for (CollectiveTerm &term : pattern.collectives) {
    bool isGather = term.kind == CollectiveKind::AllGather;
    if (term.axis != Axis::Tp || term.phase == Phase::Step || (!isGather && term.kind != CollectiveKind::ReduceScatter))
      continue;
    const ComputeTerm *product = nullptr;
    for (const ComputeTerm &compute : pattern.compute) { // in the order of positions
      if (compute.kind != ComputeClass::MatMul || program(compute.phase) != program(term.phase))
        continue;
      bool isBefore = compute.position < (isGather ? term.wait : term.start);
      if (isGather ? !isBefore && !product : isBefore)
        product = &compute;
    }
    if (!product)
      continue;
    term.inParts = true;
    if (isGather)
      term.wait = std::max(term.wait, product->position + 1);
    else
      term.start = std::min(term.start, product->position);
  }
}

/// The loss then has at least these bytes of live values.
void storeLogits(double logitBytes, PatternTerms &head) {
  auto logits = std::ranges::find_if(head.compute,
                                     [](const ComputeTerm &term) { return isForwardOf(term, ComputeClass::MatMul); });
  if (logits == head.compute.end())
    return;
  Size live = {scaled(product(product(logits->m.front(), logits->n.front()), logits->count.front()), logitBytes)};
  for (Recompute policy : planner::kRecomputes) {
    head.workspaceBytes[policy].push_back(live);
    if (!head.oneSampleWorkspaceBytes[policy].empty())
      head.oneSampleWorkspaceBytes[policy].push_back(live);
  }
}

} // namespace

void applySystem(const SystemStorage &storage, planner::Problem &problem) {
  if (storage == SystemStorage())
    return;
  for (planner::SegmentKind &kind : problem.kinds)
    for (PatternTerms &pattern : kind.patterns) {
      selectRecompute(storage.selective, pattern);
      if (storage.repeatsWholeLayer)
        repeatLastProduct(pattern);
      if (storage.scoreBytes > 0)
        storeScores(storage, problem, pattern);
      storeParameters(storage, pattern);
      if (storage.splitsProducts)
        splitProducts(pattern);
      if (storage.logitBytes > 0 && &kind == &problem.kinds[problem.head])
        storeLogits(storage.logitBytes, pattern);
      planner::orderTerms(pattern);
    }
}

void keepNarrowInputs(planner::Problem &problem) {
  for (planner::SegmentKind &kind : problem.kinds)
    for (PatternTerms &pattern : kind.patterns)
      for (Recompute policy : {Recompute::None, Recompute::Selective})
        if (pattern.weight)
          for (Monomial part : pattern.weight->savedBytes[policy]) {
            part.coefficient /= -2;
            pattern.savedBytes[policy].push_back(std::move(part));
          }
}

} // namespace espalier
