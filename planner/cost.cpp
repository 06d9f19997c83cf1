// Terms are evaluated one by one; inside a segment and phase, communication that can hide competes
// with that segment's compute.
#include "planner/cost.h"

#include <algorithm>
#include <cmath>

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

double evaluate(const SampledBytes &bytes, double samples) {
  const auto &points = bytes.points;
  if (points.size() < 2)
    return points.empty() ? 0 : points.front().second;
  size_t right = 1;
  while (right + 1 < points.size() && points[right].first < samples)
    ++right;
  auto [x0, y0] = points[right - 1];
  auto [x1, y1] = points[right];
  return std::max(0.0, y0 + (y1 - y0) * (samples - x0) / (x1 - x0));
}

double evaluate(const std::vector<ContextBytes> &bytes, double samples, int contextRanks) {
  if (bytes.size() == 1)
    return evaluate(bytes[0].bytes, samples);
  size_t right = 1;
  while (right + 1 < bytes.size() && bytes[right].ranks < contextRanks)
    ++right;
  const ContextBytes &fewer = bytes[right - 1], &more = bytes[right];
  double x = 1.0 / contextRanks, x0 = 1.0 / more.ranks, x1 = 1.0 / fewer.ranks;
  double y0 = evaluate(more.bytes, samples), y1 = evaluate(fewer.bytes, samples);
  return std::max(0.0, y0 + (y1 - y0) * (x - x0) / (x1 - x0));
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
    double blocks = std::ceil(m / tile.m) * std::ceil(n / tile.n) * count;
    double waves = std::ceil(blocks / multiprocessors);
    double done = waves * multiprocessors * tile.m * tile.n;
    best = std::max(best, tile.share * m * n * count / done);
  }
  return best;
}

double alignmentEfficiency(double m, double n, double k) {
  static constexpr double shares[] = {0.0625, 0.0625, 0.0625, 0.8, 0.9, 0.97, 1}; // 1, 2, 4, ... 64 elements
  int worst = 6;
  for (double size : {m, n, k}) {
    int64_t value = std::llround(size);
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
    efficiency *= tileEfficiency(m, n, count, machine.multiprocessors) * alignmentEfficiency(m, n, k);
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

double overlappedSeconds(double computeSeconds, double communicationSeconds) {
  return std::max(computeSeconds, communicationSeconds) + 0.1 * std::min(computeSeconds, communicationSeconds);
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

// Sums of one phase before overlap is resolved.
struct PhaseSum {
  double compute = 0;
  std::array<double, kAxes> exposed{}, hideable{};

  PhaseSeconds resolve() const {
    PhaseSeconds seconds{compute, exposed, 0};
    double hidden = 0;
    for (double part : hideable)
      hidden += part;
    if (hidden <= 0)
      return seconds;
    double extra = overlappedSeconds(compute, hidden) - compute;
    for (int axis = 0; axis < kAxes; ++axis)
      seconds.communication[axis] += extra * hideable[axis] / hidden;
    return seconds;
  }
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

void addMemory(const PatternTerms &terms, const std::vector<double> &symbols, const Plan &plan, SegmentCost &cost) {
  for (const ParameterTerm &term : terms.parameters) {
    double replicas = static_cast<double>(plan.dp) * plan.cp * (term.expert ? 1 : plan.ep);
    double elements = evaluate(term.elements, symbols);
    cost.elements += elements;
    double parameters = elements * term.parameterBytes / (plan.zero >= 3 ? replicas : 1);
    double gradients = elements * term.gradientBytes / (plan.zero >= 2 ? replicas : 1);
    double optimizer = elements * term.optimizerBytes / (plan.zero >= 1 ? replicas : 1);
    cost.parameterBytes += parameters;
    cost.gradientBytes += gradients;
    cost.optimizerBytes += optimizer;
    if (term.tied) {
      cost.tiedParameterBytes += parameters;
      cost.tiedGradientBytes += gradients;
      cost.tiedOptimizerBytes += optimizer;
    }
    if (plan.zero >= 3)
      cost.gatheredBytes += elements * (term.parameterBytes + term.gradientBytes);
  }
  for (int i = 0; i < 3; ++i) {
    cost.savedBytes[i] = evaluate(terms.savedBytes[i], symbols);
    if (i == 2 && plan.keepTensorParallelResults)
      cost.savedBytes[i] += evaluate(terms.keptCollectiveBytes, symbols);
    cost.forwardPeakBytes[i] = evaluate(terms.forwardPeakBytes[i], symbols);
    cost.backwardPeakBytes[i] = evaluate(terms.backwardPeakBytes[i], symbols);
    auto samples = static_cast<double>(plan.microBatchSize);
    cost.workspaceBytes[i] = terms.contextBytes[i].empty() ? evaluate(terms.workspaceBytes[i], samples)
                                                           : evaluate(terms.contextBytes[i], samples, plan.cp);
  }
  cost.stepBytes = evaluate(terms.stepBytes, symbols);
  for (const Size &peak : terms.stepPeakBytes)
    cost.stepPeakBytes = std::max(cost.stepPeakBytes, evaluate(peak, symbols));
}

} // namespace

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
  PhaseSum sums[5], repeats[3]; // by Phase; that of Repeat itself is not used
  for (const ComputeTerm &term : terms->compute) {
    double seconds = computeSeconds(term, symbols, problem.machine);
    sums[static_cast<int>(term.phase)].compute += seconds;
    if (term.repeatedSelective)
      repeats[1].compute += seconds;
    if (term.repeatedFull)
      repeats[2].compute += seconds;
  }
  for (const CollectiveTerm &term : terms->collectives) {
    Group group = groupOf(term.axis, plan, problem.machine, term.overExperts);
    double seconds = collectiveSeconds(term.kind, evaluate(term.bytes, symbols), term.calls, group);
    int axis = static_cast<int>(term.axis);
    auto add = [&](PhaseSum &sum) { (term.canHide ? sum.hideable : sum.exposed)[axis] += seconds; };
    add(sums[static_cast<int>(term.phase)]);
    if (term.repeatedSelective)
      add(repeats[1]);
    if (term.repeatedFull && !plan.keepTensorParallelResults)
      add(repeats[2]);
  }
  cost.forward = sums[0].resolve();
  cost.backward = sums[1].resolve();
  cost.weight = sums[2].resolve();
  cost.hideableStep = sums[3].hideable;
  sums[3].hideable = {};
  cost.step = sums[3].resolve();
  for (int i = 0; i < 3; ++i)
    cost.recompute[i] = repeats[i].resolve();
  addMemory(*terms, symbols, plan, cost);
  return cost;
}

namespace {

// What a transfer of `bytes` to or from the host adds to what runs beside it.
double exposedTransfer(double besideSeconds, double bytes, const Machine &machine) {
  return overlappedSeconds(besideSeconds, bytes / machine.hostBytesPerSecond()) - besideSeconds;
}

} // namespace

void offloadOptimizer(SegmentCost &cost, const Machine &machine) {
  cost.step.hostTransfer = exposedTransfer(cost.step.total(), cost.optimizerBytes, machine);
  cost.optimizerBufferBytes = 2 * cost.optimizerBytes;
}

void offloadActivations(SegmentCost &cost, const Machine &machine) {
  for (int i = 0; i < 3; ++i) {
    double backward = cost.backward.total() + cost.weight.total() + cost.recompute[i].total();
    cost.forwardTransfer[i] = exposedTransfer(cost.forward.total(), cost.savedBytes[i], machine);
    cost.recompute[i].hostTransfer = exposedTransfer(backward, cost.savedBytes[i], machine);
    cost.savedBufferBytes[i] = 4 * cost.savedBytes[i];
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
