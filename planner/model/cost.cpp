// Terms are evaluated one by one; the programs of a segment are then played, so that communication competes with the
// compute that runs beside it.
#include "planner/model/cost.h"

#include "planner/model/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace espalier::planner {

double PhaseSeconds::total() const {
  double sum = compute + hostTransfer;
  for (double seconds : communication)
    sum += seconds;
  return sum;
}

std::vector<double> symbolValues(const Problem &problem, const Plan &plan) {
  std::vector<double> values(kFirstDimension + problem.dimensions.size());
  values[static_cast<int>(Axis::Pp)] = plan.pp;
  values[static_cast<int>(Axis::Dp)] = plan.dp;
  values[static_cast<int>(Axis::Cp)] = plan.cp;
  values[static_cast<int>(Axis::Ep)] = plan.ep;
  values[static_cast<int>(Axis::Tp)] = plan.tp;
  values[kBatchSymbol] = static_cast<double>(plan.microBatchSize) * plan.replicas();
  for (size_t i = 0; i < problem.dimensions.size(); ++i)
    values[kFirstDimension + i] = static_cast<double>(problem.dimensions[i].size);
  return values;
}

double evaluate(const Size &size, const std::vector<double> &symbols) {
  double sum = 0;
  for (const Monomial &monomial : size) {
    double product = monomial.coefficient, divisor = 1; // one division: a search evaluates millions of monomials
    for (const Power &power : monomial.powers) {
      double value = symbols[power.symbol];
      if (power.exponent == 1)
        product *= value;
      else if (power.exponent == -1)
        divisor *= value;
      else
        product *= std::pow(value, power.exponent);
    }
    sum += product / divisor;
  }
  return sum;
}

double tileEfficiency(double m, double n, double count, int multiprocessors) {
  if (multiprocessors <= 0)
    return 1;
  // Larger tiles reuse operands better; the last column is the share of the peak inside a full
  // wave.
  struct Tile {
    double m, n, share;
  };
  static constexpr Tile tiles[] = {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.95}, {128, 64, 0.82}, {64, 64, 0.62}};
  double best = 0;
  for (const Tile &tile : tiles) {
    if (tile.share <= best) // a search evaluates millions of products
      break;
    double blocks = std::ceil(m / tile.m) * std::ceil(n / tile.n) * count;
    double waves = std::ceil(blocks / multiprocessors);
    double done = waves * multiprocessors * tile.m * tile.n;
    best = std::max(best, tile.share * m * n * count / done);
  }
  return best;
}

double alignmentEfficiency(double m, double n, double k, double count) {
  static constexpr double single[] = {0.4, 0.504, 0.635, 0.8, 0.9, 0.97, 1}; // 1, 2, 4, ... 64 elements
  static constexpr double batched[] = {0.0625, 0.0625, 0.0625, 0.8, 0.9, 0.97, 1};
  const double *shares = count > 1 ? batched : single;
  int worst = 6;
  for (double size : {m, n, k}) {
    auto value = static_cast<int64_t>(size + 0.5);
    if (std::abs(size - static_cast<double>(value)) > 1e-9 * size)
      return shares[0]; // a head dimension that does not divide: padded or strided operands
    int power = 0;
    while (power < 6 && value > 0 && value % 2 == 0) {
      value /= 2;
      ++power;
    }
    worst = std::min(worst, power);
  }
  return shares[worst];
}

double matmulSeconds(double m, double n, double k, double count, double bytes, const Machine &machine) {
  double efficiency = machine.matmulEfficiency;
  if (machine.multiprocessors > 0)
    efficiency *= tileEfficiency(m, n, count, machine.multiprocessors) * alignmentEfficiency(m, n, k, count);
  double arithmetic = 2 * m * n * k * count / (machine.peakFlops * efficiency);
  return std::max(arithmetic, bytes / machine.memoryBytesPerSecond) + machine.launchSeconds;
}

double attentionSeconds(double operations, double bytes, const Machine &machine) {
  double efficiency = machine.attentionEfficiency > 0 ? machine.attentionEfficiency : machine.matmulEfficiency;
  return std::max(operations / (machine.peakFlops * efficiency), bytes / machine.memoryBytesPerSecond) +
         machine.launchSeconds;
}

double memorySeconds(double bytes, const Machine &machine) {
  return bytes / machine.memoryBytesPerSecond + machine.launchSeconds;
}

Group groupOf(Axis axis, const Plan &plan, const Machine &machine, bool overExperts) {
  int stride = 1, ranks = plan.tp;
  switch (axis) {
  case Axis::Tp:
    break;
  case Axis::Ep:
    stride = plan.tp, ranks = plan.ep;
    break;
  case Axis::Cp:
    stride = plan.tp * plan.ep, ranks = plan.cp;
    break;
  case Axis::Dp: // gradients are summed over the context ranks too, which lie next to each other
    stride = plan.tp * plan.ep, ranks = plan.dp * plan.cp;
    if (overExperts)
      stride = plan.tp, ranks *= plan.ep;
    break;
  case Axis::Pp:
    stride = plan.tp * plan.ep * plan.cp * plan.dp, ranks = plan.pp;
    break;
  }
  Group group;
  group.ranks = ranks;
  group.perHost = std::clamp(machine.devicesPerHost / stride, 1, std::max(1, ranks));
  group.bytesPerSecond = machine.link.bytesPerSecond;
  group.hopSeconds = machine.link.latencySeconds;
  group.linkBytesPerSecond = machine.link.bytesPerSecond;
  group.networkBytesPerSecond = machine.network.bytesPerSecond;
  if (group.perHost < ranks) {
    // A send between neighbouring stages is one rank's; a ring has the shares of all its members on
    // a host.
    double across = axis != Axis::Pp                 ? group.perHost * machine.network.bytesPerSecond
                    : machine.sendBytesPerSecond > 0 ? machine.sendBytesPerSecond
                                                     : machine.network.bytesPerSecond;
    group.bytesPerSecond = group.perHost > 1 ? std::min(machine.link.bytesPerSecond, across) : across;
    double share = 1.0 / group.perHost; // one of r ring steps leaves the host
    group.hopSeconds = share * machine.network.latencySeconds + (1 - share) * machine.link.latencySeconds;
  }
  return group;
}

double collectiveSeconds(CollectiveKind kind, double bytes, double calls, const Group &group) {
  if (group.ranks <= 1 || bytes <= 0)
    return 0;
  double n = group.ranks, hops = n - 1;
  double once = hops / n * bytes / group.bytesPerSecond + calls * hops * group.hopSeconds;
  switch (kind) {
  case CollectiveKind::AllReduce:
    return 2 * once;
  case CollectiveKind::AllGather:
  case CollectiveKind::ReduceScatter:
    return once;
  case CollectiveKind::AllToAll: {
    double inside = (group.perHost - 1) / n * bytes / group.linkBytesPerSecond;
    double across = group.perHost < n ? (n - group.perHost) / n * bytes / group.networkBytesPerSecond : 0;
    return std::max(inside, across) + calls * hops * group.hopSeconds;
  }
  case CollectiveKind::Send:
    return bytes / group.bytesPerSecond + calls * group.hopSeconds;
  }
  return 0;
}

namespace {

constexpr double competition = 0.1; ///< share of the time side by side that compute and transfers take from each other

} // namespace

double overlappedSeconds(double computeSeconds, double communicationSeconds) {
  return std::max(computeSeconds, communicationSeconds) + competition * std::min(computeSeconds, communicationSeconds);
}

bool matches(const Pattern &pattern, const Plan &plan) {
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
// compute hides two collectives.
class ProgramPlayer {
public:
  // A collective that runs beside compute, in the order of starts; its exposed time is added to `exposed`.
  void add(const CollectiveTerm &term, double seconds, double &exposed) {
    exposed += competition * seconds;
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
      *transfers[done].exposed += (1 - competition) * transfers[done].left;
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
  SegmentPrograms(const Plan &plan, const Machine &machine, SegmentCost &cost)
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

  const Plan &plan;
  const Machine &machine;
  SegmentCost &cost;
  int weight; ///< program of Phase::Weight
  std::array<ProgramPlayer, 6> programs;
};

void addTime(const Problem &problem, const PatternTerms &terms, const std::vector<double> &symbols, const Plan &plan,
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

double roundedUp(double size, double multiple) {
  return multiple > 0 ? std::ceil(size / multiple) * multiple : size;
}

void addMemory(const PatternTerms &terms, const std::vector<double> &symbols, const Plan &plan, SegmentCost &cost) {
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
    if (term.tied) {
      cost.tiedParameterBytes += parameters;
      cost.tiedGradientBytes += gradients;
      cost.tiedOptimizerBytes += optimizer;
    }
    if (plan.zero >= 3)
      cost.gatheredBytes += term.gatheredShare * room * (term.parameterBytes + term.gradientBytes);
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

SegmentCost segmentCost(const Problem &problem, int kind, const Plan &plan, bool *found) {
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
  addMemory(*terms, symbols, plan, cost);
  return cost;
}

namespace {

// What a transfer of `bytes` to or from the host adds to what runs beside it.
double exposedTransfer(double besideSeconds, double bytes, const Machine &machine) {
  return overlappedSeconds(besideSeconds, bytes / machine.hostBytesPerSecond()) - besideSeconds;
}

} // namespace

void addOffload(SegmentCost &cost, const Machine &machine, const Plan &plan, bool isLayer) {
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

double boundarySeconds(const Problem &problem, const Plan &plan) {
  if (plan.pp <= 1)
    return 0;
  double bytes = evaluate(problem.boundaryBytes, symbolValues(problem, plan));
  Group group = groupOf(Axis::Pp, plan, problem.machine);
  // Neighbouring stages: members of one host come first, so most boundaries of wide stages cross
  // hosts.
  if (plan.sequenceParallel)
    bytes /= plan.tp; // the stream's sequence is split over tp
  if (!problem.boundaryScatters || plan.sequenceParallel || plan.tp == 1)
    return collectiveSeconds(CollectiveKind::Send, bytes, 1, group);
  return collectiveSeconds(CollectiveKind::Send, bytes / plan.tp, 1, group) +
         collectiveSeconds(CollectiveKind::AllGather, bytes, 1, groupOf(Axis::Tp, plan, problem.machine));
}

double tiedEmbeddingSeconds(const Problem &problem, const Plan &plan) {
  if (!problem.tiedEmbedding || plan.pp <= 1)
    return 0;
  Group pair = groupOf(Axis::Pp, plan, problem.machine);
  pair.ranks = 2;
  double bytes = evaluate(problem.tiedBytes, symbolValues(problem, plan));
  return collectiveSeconds(CollectiveKind::AllReduce, bytes, 1, pair);
}

} // namespace espalier::planner
