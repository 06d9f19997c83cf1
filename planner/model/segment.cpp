// Evaluates terms one by one, then simulates the programs of a segment to account for overlap of communication and
// compute.
#include "planner/model/segment.h"

#include "planner/model/schedule.h"

#include <algorithm>
#include <cmath>

namespace espalier::planner {

namespace {

bool matches(const Pattern &pattern, const ParallelConfig &config) {
  auto axis = [](const std::optional<bool> &wanted, int size) { return !wanted || *wanted == (size > 1); };
  return axis(pattern.dp, config.dp) && axis(pattern.tp, config.tp) && axis(pattern.cp, config.cp) &&
         axis(pattern.ep, config.ep) &&
         (!pattern.sequenceParallel || *pattern.sequenceParallel == config.sequenceParallel) &&
         (!pattern.vocabParallel || *pattern.vocabParallel == config.vocabParallel) &&
         (!pattern.splitsExperts || *pattern.splitsExperts == config.splitsExperts) &&
         (!pattern.expertsOverContext || *pattern.expertsOverContext == config.expertsOverContext) &&
         (!pattern.zero || *pattern.zero == config.zero) && axis(pattern.pp, config.pp) &&
         (!pattern.tensorRanks || *pattern.tensorRanks == config.tp);
}

} // namespace

const PatternTerms *termsOf(const SegmentKind &kind, const ParallelConfig &config) {
  auto found =
      std::ranges::find_if(kind.patterns, [&](const PatternTerms &one) { return matches(one.pattern, config); });
  return found == kind.patterns.end() ? nullptr : &*found;
}

namespace {

// Simulates one program with a compute stream and a transfer stream. Of the started collectives, the one with the
// earliest wait is transferred first. A wait stalls compute until its collective and all that precede it are done. The
// same compute thus never hides two collectives. Example: a transfer of 3 s beside kernels of 2 s exposes 0.1 * 3 +
// 0.9 * (3 - 2) = 1.2 s.
class ProgramPlayer {
public:
  // Adds a collective that overlaps with compute. Calls follow the order of starts. Its exposed time is added to
  // `exposed`.
  void add(const CollectiveTerm &term, double seconds, double &exposed) {
    exposed += kCompetition * seconds;
    transfers.push_back({term.start, term.wait, seconds, &exposed});
  }

  // Runs a kernel. Calls follow the order of positions. Starts and waits at the same position come before the kernel.
  void run(int position, double seconds) {
    if (transfers.empty())
      return;
    advance(position);
    for (size_t i = done; i < coming; ++i) {
      double moved = std::min(transfers[i].left, seconds);
      transfers[i].left -= moved;
      seconds -= moved;
    }
  }

  void finish() { advance(std::numeric_limits<int>::max()); }

private:
  struct Transfer {
    int start, wait;
    double left;
    double *exposed;
  };

  void advance(int position) {
    auto begin = transfers.begin();
    for (; coming < transfers.size() && transfers[coming].start <= position; ++coming) {
      auto started = begin + coming;
      std::rotate(std::ranges::upper_bound(begin + done, started, started->wait, {}, &Transfer::wait), started,
                  started + 1);
    }
    for (; done < coming && transfers[done].wait <= position; ++done)
      *transfers[done].exposed += (1 - kCompetition) * transfers[done].left;
  }

  std::vector<Transfer> transfers; ///< waited for; in flight, by wait; to come, by start
  size_t done = 0, coming = 0;     ///< where the second and third of these begin
};

// Whether the zigzag order rearranges gathered keys and values, as several samples do.
bool rearrangesRuns(const ParallelConfig &config, const Software &software) {
  return config.hasTwoRuns() && software.contextOrders != ContextOrders::Zigzag;
}

// Returns the operations of attention. In zigzag order the ranks of cp have equally much of it; else the last has most.
double attentionOperations(const ComputeTerm &term, const std::vector<double> &symbols, const ParallelConfig &config,
                           const Software &software) {
  if (!config.hasTwoRuns() && software.contextOrders != ContextOrders::Zigzag)
    return evaluate(term.operations, symbols);
  Monomial mean = term.operations.front();
  for (size_t i = 1; i < term.operations.size(); ++i)
    mean.coefficient += term.operations[i].coefficient;
  return evaluate({mean}, symbols);
}

double computeSeconds(const ComputeTerm &term, const std::vector<double> &symbols, const ParallelConfig &config,
                      const Problem &problem) {
  const Machine &machine = problem.machine;
  double bytes = evaluate(term.bytes, symbols);
  switch (term.kind) {
  case ComputeClass::MatMul:
    return matmulSeconds(evaluate(term.m, symbols), evaluate(term.n, symbols), evaluate(term.k, symbols),
                         evaluate(term.count, symbols), bytes, machine);
  case ComputeClass::Attention:
    return attentionSeconds(attentionOperations(term, symbols, config, problem.software), bytes, machine);
  case ComputeClass::Memory:
    return memorySeconds(std::max(bytes, 0.0), machine); // recomputed work may need fewer bytes
  }
  return 0;
}

/// Returns the share of a collective that the software overlaps with compute if the program allows it.
double hiddenShare(const CollectiveTerm &term, const Software &software, int tensorRanks) {
  if (movesTokens(term))
    return software.hiddenExpert;
  switch (term.axis) {
  case Axis::Tp:
    return term.inParts ? software.hiddenTensor * (1 - 1.0 / tensorRanks) : software.hiddenTensor;
  case Axis::Cp:
    return software.hiddenContext;
  case Axis::Ep:
    return software.hiddenExpert;
  case Axis::Dp:
    return term.kind == CollectiveKind::AllGather ? software.hiddenGathers : software.hiddenGradients;
  case Axis::Pp:
    break;
  }
  return 1;
}

// The programs of one segment: one per phase, and one per recompute class for the work before backward.
class SegmentPrograms {
public:
  SegmentPrograms(const ParallelConfig &config, const Problem &problem, SegmentCost &cost)
      : config(config), machine(problem.machine), software(problem.software), cost(cost),
        weight(splitsBackward(config.schedule) ? 2 : 1) {}

  void add(const CollectiveTerm &term, double seconds) {
    double hidden = hiddenShare(term, software, config.tp);
    if (term.besideLastBackward && machine.transfersBesideCompute()) {
      cost.hideableStep[term.axis] += hidden * seconds;
      cost.step.communication[term.axis] += (1 - hidden) * seconds;
      return;
    }
    bool isBeside = machine.transfersBesideCompute() && term.wait > term.start && seconds > 0;
    auto addTo = [&](ProgramPlayer &program, PhaseSeconds &phase) {
      double &exposed = phase.communication[term.axis];
      exposed += isBeside ? (1 - hidden) * seconds : seconds;
      if (isBeside && hidden > 0)
        program.add(term, hidden * seconds, exposed);
    };
    visit(term, term.recomputedFull && !config.keepTensorParallelResults, addTo);
  }

  // Adds the sum of a gradient's shard over its replicas. It runs once per step, even if the scatter runs for each
  // micro-batch.
  void addReplicaSum(const CollectiveTerm &scatter, double seconds) {
    if (scatter.phase == Phase::Step)
      add(scatter, seconds);
    else
      cost.step.communication[scatter.axis] += seconds;
  }

  void run(const ComputeTerm &term, double seconds) {
    visit(term, term.recomputedFull, [&](ProgramPlayer &program, PhaseSeconds &phase) {
      phase.compute += seconds;
      program.run(term.position, seconds);
    });
  }

  // Adds a copy of a gathered sequence, or of one that is scattered. It hides no transfer.
  void addRearrangement(const CollectiveTerm &term, double seconds) {
    visit(term, term.recomputedFull, [&](ProgramPlayer &, PhaseSeconds &phase) { phase.compute += seconds; });
  }

  void finish() {
    for (ProgramPlayer &program : programs)
      program.finish();
  }

private:
  template <typename Term, typename Visit> void visit(const Term &term, bool isRecomputedByFull, Visit visitPart) {
    switch (term.phase) {
    case Phase::Forward:
      visitPart(programs[0], cost.forward);
      break;
    case Phase::Backward:
      visitPart(programs[1], cost.backward);
      break;
    case Phase::Weight: // where it is an action of its own it hides nothing of backward
      visitPart(programs[weight], cost.weight);
      break;
    case Phase::Step:
      visitPart(programs[3], cost.step);
      break;
    case Phase::Recompute:
      break;
    }
    if (term.recomputedSelective)
      visitPart(programs[4], cost.recompute[Recompute::Selective]);
    if (isRecomputedByFull)
      visitPart(programs[5], cost.recompute[Recompute::Full]);
  }

  const ParallelConfig &config;
  const Machine &machine;
  const Software &software;
  SegmentCost &cost;
  int weight; ///< program of Phase::Weight
  std::array<ProgramPlayer, 6> programs;
};

// `computeSeconds` has an element per compute term.
void addTime(const Problem &problem, const PatternTerms &terms, const std::vector<double> &symbols,
             const ParallelConfig &config, const std::vector<double> &computeSeconds, SegmentCost &cost) {
  SegmentPrograms programs(config, problem, cost);
  bool rearranges = problem.software.contextOrders == ContextOrders::Both &&
                    (config.hasTwoRuns() || (config.cp > 1 && config.microBatchSize > 1));
  for (const CollectiveTerm &term : terms.collectives) {
    Group group = groupOf(term, config, problem);
    if (term.axis == Axis::Dp && term.kind == CollectiveKind::AllGather && group.ranks > 1)
      (term.phase == Phase::Forward    ? cost.forward
       : term.phase == Phase::Backward ? cost.backward
                                       : cost.step)
          .communication[Axis::Dp] += config.zero == 3 ? problem.software.gatherSeconds * term.calls : 0;
    double bytes = evaluate(term.bytes, symbols);
    const Dispatch &dispatch = problem.software.dispatch;
    bool isDispatch = movesTokens(term);
    double seconds = collectiveSeconds(term.kind, isDispatch ? dispatch.bytesShare * bytes : bytes, term.calls, group);
    programs.add(term, isDispatch ? (1 - (1 - kCompetition) * dispatch.besideShare) * seconds : seconds);
    if (rearranges && term.axis == Axis::Cp && !isDispatch && term.phase != Phase::Step &&
        term.kind != CollectiveKind::AllReduce)
      programs.addRearrangement(term, memorySeconds(2 * bytes, problem.machine));
    if (double seconds = replicaSumSeconds(term, bytes, config, problem.machine); seconds > 0)
      programs.addReplicaSum(term, seconds);
  }
  for (size_t i = 0; i < terms.compute.size(); ++i)
    programs.run(terms.compute[i], computeSeconds[i]);
  programs.finish();
}

double largest(const std::vector<Size> &sizes, const std::vector<double> &symbols) {
  double most = 0;
  for (const Size &size : sizes)
    most = std::max(most, evaluate(size, symbols));
  return most;
}

double roundedUp(double size, double multiple) { return multiple > 0 ? std::ceil(size / multiple) * multiple : size; }

// Bytes per element of a ZeRO-sharded parameter while it is unsharded.
double unshardedBytes(const ParameterTerm &term, int zero, UnshardedBuffers room) {
  if (zero == 3)
    return term.parameterBytes + term.gradientBytes;
  return zero == 2 && room == UnshardedBuffers::Separate ? term.gradientBytes : 0;
}

void setWorkspaces(const Problem &problem, const PatternTerms &terms, const std::vector<double> &symbols,
                   const ParallelConfig &config, SegmentCost &cost) {
  bool isOneSample = config.microBatchSize == 1 && !rearrangesRuns(config, problem.software);
  for (Recompute i : kRecomputes) {
    auto workspace = [&](const auto &some) {
      bool isOther = isOneSample && !some.oneSampleWorkspaceBytes[i].empty();
      return largest(isOther ? some.oneSampleWorkspaceBytes[i] : some.workspaceBytes[i], symbols);
    };
    bool isSplit = splitsBackward(config.schedule) && terms.weight;
    cost.workspaceBytes[i] = isSplit ? workspace(*terms.weight) : workspace(terms);
  }
}

void addMemory(const Problem &problem, const PatternTerms &terms, const std::vector<double> &symbols,
               const ParallelConfig &config, SegmentCost &cost) {
  for (const ParameterTerm &term : terms.parameters) {
    double replicas = static_cast<double>(config.zeroRanks()) * (term.expert ? 1 : config.ep) *
                      (term.expert && config.expertsOverContext ? 1 : config.cp);
    double elements = evaluate(term.elements, symbols);
    cost.elements += elements;
    bool isSharded = config.zero >= (term.isFrozen ? 3 : 1);
    double room = roundedUp(elements + term.padding, term.shareMultiple * (isSharded ? replicas : 1));
    if (term.matrices > 0 && isSharded)
      room = elements / term.matrices * roundedUp(term.matrices, replicas);
    double parameters = room * term.parameterBytes / (config.zero >= 3 ? replicas : 1);
    double gradients = room * term.gradientBytes / (config.zero >= 2 ? replicas : 1);
    double optimizer = room * term.optimizerBytes / (config.zero >= 1 ? replicas : 1);
    cost.parameterBytes += parameters;
    cost.gradientBytes += gradients;
    cost.optimizerBytes += optimizer;
    bool isShared = replicas > 1 || problem.unshardedBuffers ==
                                        UnshardedBuffers::Shared; // which also gathers parameters of a single rank
    double unsharded =
        isShared ? term.unshardedShare * room * unshardedBytes(term, config.zero, problem.unshardedBuffers) : 0;
    cost.unshardedBytes += unsharded;
    if (term.tied) {
      cost.tiedParameterBytes += parameters;
      cost.tiedGradientBytes += gradients;
      cost.tiedOptimizerBytes += optimizer;
      cost.tiedUnshardedBytes += unsharded;
    }
  }
  for (Recompute i : kRecomputes) {
    cost.savedBytes[i] = evaluate(terms.savedBytes[i], symbols);
    if (i == Recompute::Full && config.keepTensorParallelResults)
      cost.savedBytes[i] += evaluate(terms.keptCollectiveBytes, symbols);
    cost.forwardPeakBytes[i] = evaluate(terms.forwardPeakBytes[i], symbols);
    cost.backwardPeakBytes[i] = evaluate(terms.backwardPeakBytes[i], symbols);
    bool isSplit = splitsBackward(config.schedule);
    if (!isSplit)
      continue;
    cost.weightBytes[i] = cost.savedBytes[i];
    if (!terms.weight)
      continue;
    cost.weightBytes[i] = evaluate(terms.weight->savedBytes[i], symbols);
    cost.passedBytes[i] = evaluate(terms.weight->passedBytes[i], symbols);
    cost.streamBytes[i] = evaluate(terms.weight->streamBytes[i], symbols);
    cost.weightReadsStream[i] = terms.weight->readsStream[i];
  }
  setWorkspaces(problem, terms, symbols, config, cost);
  cost.stepBytes = evaluate(terms.stepBytes, symbols);
  cost.stepPeakBytes = largest(terms.stepPeakBytes, symbols);
}

} // namespace

void orderTerms(PatternTerms &terms) {
  auto insert = [](auto &list, auto place) { // stable insertion sort; most lists are already sorted
    for (auto next = list.begin(); next != list.end(); ++next)
      std::rotate(std::ranges::upper_bound(list.begin(), next, (*next).*place, {}, place), next, next + 1);
  };
  insert(terms.compute, &ComputeTerm::position);
  insert(terms.collectives, &CollectiveTerm::start);
}

namespace {

// Whether a kind's terms differ from another's only in the operations of attention and the names of parameters.
bool areAlike(const SegmentKind &one, const SegmentKind &other) {
  auto alikeTerms = [](const ComputeTerm &a, const ComputeTerm &b) {
    if (a.kind != ComputeClass::Attention || b.kind != ComputeClass::Attention)
      return a == b;
    ComputeTerm same = a;
    same.operations = b.operations;
    return same == b;
  };
  auto alikePatterns = [&](const PatternTerms &a, const PatternTerms &b) {
    if (!std::ranges::equal(a.compute, b.compute, alikeTerms))
      return false;
    PatternTerms same = a;
    same.compute = b.compute;
    for (size_t i = 0; i < std::min(a.parameters.size(), b.parameters.size()); ++i)
      same.parameters[i].name = b.parameters[i].name;
    return same == b;
  };
  return !one.patterns.empty() && std::ranges::equal(one.patterns, other.patterns, alikePatterns);
}

} // namespace

void findLikeKinds(Problem &problem) {
  for (size_t kind = 0; kind < problem.kinds.size(); ++kind) {
    problem.kinds[kind].like = -1;
    for (size_t earlier = 0; earlier < kind && problem.kinds[kind].like < 0; ++earlier)
      if (problem.kinds[earlier].like < 0 && areAlike(problem.kinds[earlier], problem.kinds[kind]))
        problem.kinds[kind].like = static_cast<int>(earlier);
  }
}

SegmentCosts::SegmentCosts(const Problem &problem, const ParallelConfig &config)
    : problem(problem), config(config), symbols(symbolValues(problem, config)), kinds(problem.kinds.size()) {}

const std::optional<SegmentCost> &SegmentCosts::of(int kind) {
  static const std::optional<SegmentCost> nothing = SegmentCost();
  if (kind < 0)
    return nothing;
  if (!kinds[kind]) {
    int like = problem.kinds[kind].like;
    if (like >= 0)
      of(like);
    evaluate(kind, like >= 0 ? &*kinds[like] : nullptr, kinds[kind].emplace());
  } else if (kinds[kind]->terms && !kinds[kind]->cost) {
    setWorkspaces(problem, *kinds[kind]->terms, symbols, config, kinds[kind]->memory);
    addTimes(/*onlyAttention=*/true, *kinds[kind]);
  }
  return kinds[kind]->cost;
}

void SegmentCosts::reorder(bool zigzag) {
  if (config.zigzag == zigzag)
    return;
  config.zigzag = zigzag;
  for (std::optional<Evaluated> &kind : kinds)
    if (kind)
      kind->cost.reset();
}

void SegmentCosts::evaluate(int kind, const Evaluated *like, Evaluated &result) {
  const SegmentKind &own = problem.kinds[kind];
  if (like) { // has the same patterns in the same order
    result = *like;
    if (like->terms)
      result.terms = &own.patterns[like->terms - problem.kinds[own.like].patterns.data()];
  } else if ((result.terms = termsOf(own, config))) {
    addMemory(problem, *result.terms, symbols, config, result.memory);
  }
  if (result.terms)
    addTimes(/*onlyAttention=*/like, result);
}

void SegmentCosts::addTimes(bool onlyAttention, Evaluated &result) {
  const std::vector<ComputeTerm> &compute = result.terms->compute;
  result.computeSeconds.resize(compute.size());
  for (size_t i = 0; i < compute.size(); ++i)
    if (!onlyAttention || compute[i].kind == ComputeClass::Attention) {
      result.computeSeconds[i] = computeSeconds(compute[i], symbols, config, problem);
      ++evaluations;
    }
  result.cost = result.memory;
  addTime(problem, *result.terms, symbols, config, result.computeSeconds, *result.cost);
}

std::optional<SegmentCost> segmentCost(const Problem &problem, int kind, const ParallelConfig &config) {
  return SegmentCosts(problem, config).of(kind);
}

namespace {

// Returns the exposed time of a transfer of `bytes` to or from the host beside `besideSeconds` of work.
double exposedTransfer(double besideSeconds, double bytes, const Machine &machine) {
  return overlappedSeconds(besideSeconds, bytes / machine.hostBytesPerSecond()) - besideSeconds;
}

} // namespace

void addOffload(SegmentCost &cost, const Machine &machine, const ParallelConfig &config, bool isLayer) {
  double coming = config.offloadParameters ? cost.parameterBytes : 0;
  double leaving = config.offloadParameters ? cost.gradientBytes : 0;
  if (config.offloadOptimizer) {
    double passing = cost.optimizerBytes + std::max(coming, leaving);
    cost.step.hostTransfer = exposedTransfer(cost.step.total(), passing, machine);
    cost.optimizerBufferBytes = 2 * cost.optimizerBytes;
  }
  cost.parameterBufferBytes = (isLayer ? 2 : 1) * (coming + leaving);
  bool movesActivations = config.offloadActivations && isLayer;
  if (!movesActivations && !config.offloadParameters)
    return;
  bool isSplit = splitsBackward(config.schedule);
  for (Recompute i : kRecomputes) {
    double kept = movesActivations ? cost.savedBytes[i] : 0;
    double weight = cost.weight.total(), backward = cost.backward.total() + cost.recompute[i].total();
    if (isSplit)
      cost.weightTransfer[i] = exposedTransfer(weight, std::max(kept, leaving), machine);
    else
      backward += weight;
    cost.forwardTransfer[i] = exposedTransfer(cost.forward.total(), std::max(coming, kept), machine);
    double back = std::max(coming + kept, isSplit ? 0 : leaving);
    cost.recompute[i].hostTransfer = exposedTransfer(backward, back, machine);
    cost.savedBufferBytes[i] = 4 * kept;
  }
}

} // namespace espalier::planner
