// Terms are evaluated one by one; the programs of a segment are then played, so that communication competes with the
// compute that runs beside it.
#include "planner/model/segment.h"

#include "planner/model/schedule.h"

#include <algorithm>
#include <cmath>

namespace espalier::planner {

double PhaseSeconds::total() const {
  double sum = compute + hostTransfer;
  for (double seconds : communication)
    sum += seconds;
  return sum;
}

bool matches(const Pattern &pattern, const Axes &plan) {
  auto axis = [](const std::optional<bool> &wanted, int size) { return !wanted || *wanted == (size > 1); };
  return axis(pattern.dp, plan.dp) && axis(pattern.tp, plan.tp) && axis(pattern.cp, plan.cp) &&
         axis(pattern.ep, plan.ep) &&
         (!pattern.sequenceParallel || *pattern.sequenceParallel == plan.sequenceParallel) &&
         (!pattern.vocabParallel || *pattern.vocabParallel == plan.vocabParallel) &&
         (!pattern.zero || *pattern.zero == plan.zero) && axis(pattern.pp, plan.pp) &&
         (!pattern.tensorRanks || *pattern.tensorRanks == plan.tp);
}

namespace {

// Plays one program with a stream of kernels and one of transfers. Of the collectives that have started, the one that
// is waited for first moves; a wait stalls the kernels until it is done, and all that must be done before it. So no
// compute hides two collectives. Example: a transfer of 3 s beside kernels of 2 s exposes 0.1 * 3 + 0.9 * (3 - 2) =
// 1.2 s.
class ProgramPlayer {
public:
  // A collective that runs beside compute, in the order of starts; its exposed time is added to `exposed`.
  void add(const CollectiveTerm &term, double seconds, double &exposed) {
    exposed += kCompetition * seconds;
    transfers.push_back({term.start, term.wait, seconds, &exposed});
  }

  // A kernel, in the order of positions; starts and waits of the same position come before it.
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

double computeSeconds(const ComputeTerm &term, const std::vector<double> &symbols, const Machine &machine) {
  double bytes = evaluate(term.bytes, symbols);
  switch (term.kind) {
  case ComputeClass::MatMul:
    return matmulSeconds(evaluate(term.m, symbols), evaluate(term.n, symbols), evaluate(term.k, symbols),
                         evaluate(term.count, symbols), bytes, machine);
  case ComputeClass::Attention:
    return attentionSeconds(evaluate(term.operations, symbols), bytes, machine);
  case ComputeClass::Memory:
    return memorySeconds(std::max(bytes, 0.0), machine); // repeated work may need fewer bytes
  }
  return 0;
}

// The programs of one segment: of each phase, and what a class of recompute runs before backward.
class SegmentPrograms {
public:
  SegmentPrograms(const Axes &plan, const Machine &machine, SegmentCost &cost)
      : plan(plan), machine(machine), cost(cost), weight(splitsBackward(plan.schedule) ? 2 : 1) {}

  void add(const CollectiveTerm &term, double seconds) {
    if (term.besideLastBackward && machine.transfersBesideCompute()) {
      cost.hideableStep[static_cast<int>(term.axis)] += seconds;
      return;
    }
    bool isBeside = machine.transfersBesideCompute() && term.wait > term.start && seconds > 0;
    auto addTo = [&](ProgramPlayer &program, PhaseSeconds &phase) {
      double &exposed = phase.communication[static_cast<int>(term.axis)];
      if (isBeside)
        program.add(term, seconds, exposed);
      else
        exposed += seconds;
    };
    visit(term, term.repeatedFull && !plan.keepTensorParallelResults, addTo);
  }

  void run(const ComputeTerm &term, double seconds) {
    visit(term, term.repeatedFull, [&](ProgramPlayer &program, PhaseSeconds &phase) {
      phase.compute += seconds;
      program.run(term.position, seconds);
    });
  }

  void finish() {
    for (ProgramPlayer &program : programs)
      program.finish();
  }

private:
  template <typename Term, typename Visit> void visit(const Term &term, bool isRepeatedByFull, Visit visitPart) {
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
    case Phase::Repeat:
      break;
    }
    if (term.repeatedSelective)
      visitPart(programs[4], cost.recompute[1]);
    if (isRepeatedByFull)
      visitPart(programs[5], cost.recompute[2]);
  }

  const Axes &plan;
  const Machine &machine;
  SegmentCost &cost;
  int weight; ///< program of Phase::Weight
  std::array<ProgramPlayer, 6> programs;
};

void addTime(const Problem &problem, const PatternTerms &terms, const std::vector<double> &symbols, const Axes &plan,
             SegmentCost &cost) {
  SegmentPrograms programs(plan, problem.machine, cost);
  for (const CollectiveTerm &term : terms.collectives) {
    Group group = groupOf(term.axis, plan, problem.machine, term.overExperts);
    programs.add(term, collectiveSeconds(term.kind, evaluate(term.bytes, symbols), term.calls, group));
  }
  for (const ComputeTerm &term : terms.compute)
    programs.run(term, computeSeconds(term, symbols, problem.machine));
  programs.finish();
}

double largest(const std::vector<Size> &sizes, const std::vector<double> &symbols) {
  double most = 0;
  for (const Size &size : sizes)
    most = std::max(most, evaluate(size, symbols));
  return most;
}

double roundedUp(double size, double multiple) { return multiple > 0 ? std::ceil(size / multiple) * multiple : size; }

// Of one element that ZeRO shares, what is whole for a while.
double wholeBytes(const ParameterTerm &term, int zero, WholeRoom room) {
  if (zero == 3)
    return term.parameterBytes + term.gradientBytes;
  return zero == 2 && room == WholeRoom::Each ? term.gradientBytes : 0;
}

void addMemory(const Problem &problem, const PatternTerms &terms, const std::vector<double> &symbols, const Axes &plan,
               SegmentCost &cost) {
  for (const ParameterTerm &term : terms.parameters) {
    double replicas = static_cast<double>(plan.dp) * plan.cp * (term.expert ? 1 : plan.ep);
    double elements = evaluate(term.elements, symbols);
    cost.elements += elements;
    double room = roundedUp(elements + term.padding, term.shareMultiple * (plan.zero >= 1 ? replicas : 1));
    double parameters = room * term.parameterBytes / (plan.zero >= 3 ? replicas : 1);
    double gradients = room * term.gradientBytes / (plan.zero >= 2 ? replicas : 1);
    double optimizer = room * term.optimizerBytes / (plan.zero >= 1 ? replicas : 1);
    cost.parameterBytes += parameters;
    cost.gradientBytes += gradients;
    cost.optimizerBytes += optimizer;
    bool isShared = replicas > 1 || problem.wholeRoom == WholeRoom::Largest; // which gathers what a rank has alone, too
    double whole = isShared ? term.wholeShare * room * wholeBytes(term, plan.zero, problem.wholeRoom) : 0;
    cost.wholeBytes += whole;
    if (term.tied) {
      cost.tiedParameterBytes += parameters;
      cost.tiedGradientBytes += gradients;
      cost.tiedOptimizerBytes += optimizer;
      cost.tiedWholeBytes += whole;
    }
  }
  for (int i = 0; i < 3; ++i) {
    cost.savedBytes[i] = evaluate(terms.savedBytes[i], symbols);
    if (i == 2 && plan.keepTensorParallelResults)
      cost.savedBytes[i] += evaluate(terms.keptCollectiveBytes, symbols);
    cost.forwardPeakBytes[i] = evaluate(terms.forwardPeakBytes[i], symbols);
    cost.backwardPeakBytes[i] = evaluate(terms.backwardPeakBytes[i], symbols);
    bool isOneSample = plan.microBatchSize == 1 && !terms.oneSampleWorkspaceBytes[i].empty();
    cost.workspaceBytes[i] = largest(isOneSample ? terms.oneSampleWorkspaceBytes[i] : terms.workspaceBytes[i], symbols);
  }
  cost.stepBytes = evaluate(terms.stepBytes, symbols);
  cost.stepPeakBytes = largest(terms.stepPeakBytes, symbols);
}

} // namespace

void orderTerms(PatternTerms &terms) {
  auto insert = [](auto &list, auto place) { // one by one behind its equals; most are in order already
    for (auto next = list.begin(); next != list.end(); ++next)
      std::rotate(std::ranges::upper_bound(list.begin(), next, (*next).*place, {}, place), next, next + 1);
  };
  insert(terms.compute, &ComputeTerm::position);
  insert(terms.collectives, &CollectiveTerm::start);
}

SegmentCost segmentCost(const Problem &problem, int kind, const Axes &plan, bool *found) {
  SegmentCost cost;
  if (found)
    *found = kind < 0;
  if (kind < 0)
    return cost;
  const PatternTerms *terms = nullptr;
  for (const PatternTerms &candidate : problem.kinds[kind].patterns)
    if (!terms && matches(candidate.pattern, plan))
      terms = &candidate;
  if (!terms)
    return cost;
  if (found)
    *found = true;

  std::vector<double> symbols = symbolValues(problem, plan);
  addTime(problem, *terms, symbols, plan, cost);
  addMemory(problem, *terms, symbols, plan, cost);
  return cost;
}

namespace {

// What a transfer of `bytes` to or from the host adds to what runs beside it.
double exposedTransfer(double besideSeconds, double bytes, const Machine &machine) {
  return overlappedSeconds(besideSeconds, bytes / machine.hostBytesPerSecond()) - besideSeconds;
}

} // namespace

void addOffload(SegmentCost &cost, const Machine &machine, const Axes &plan, bool isLayer) {
  double coming = plan.offloadParameters ? cost.parameterBytes : 0;
  double leaving = plan.offloadParameters ? cost.gradientBytes : 0;
  if (plan.offloadOptimizer) {
    double passing = cost.optimizerBytes + std::max(coming, leaving);
    cost.step.hostTransfer = exposedTransfer(cost.step.total(), passing, machine);
    cost.optimizerBufferBytes = 2 * cost.optimizerBytes;
  }
  cost.parameterBufferBytes = (isLayer ? 2 : 1) * (coming + leaving);
  bool keepsElsewhere = plan.offloadActivations && isLayer;
  if (!keepsElsewhere && !plan.offloadParameters)
    return;
  bool isSplit = splitsBackward(plan.schedule);
  for (int i = 0; i < 3; ++i) {
    double kept = keepsElsewhere ? cost.savedBytes[i] : 0;
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
