#include "planner/model/cost.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace espalier::planner {

std::vector<double> symbolValues(const Problem &problem, const ParallelConfig &config) {
  std::vector<double> values(kFirstDimension + problem.dimensions.size());
  for (int axis = 0; axis < kAxes; ++axis)
    values[axis] = *axisMembers(config)[axis];
  values[kBatchSymbol] = static_cast<double>(config.microBatchSize) * config.replicas();
  for (size_t i = 0; i < problem.dimensions.size(); ++i)
    values[kFirstDimension + i] = static_cast<double>(problem.dimensions[i].size);
  return values;
}

double evaluate(const Size &size, const std::vector<double> &symbols) {
  double sum = 0;
  for (const Monomial &monomial : size) {
    double product = monomial.coefficient,
           divisor = 1; // one division, because a search evaluates millions of monomials
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
  // Larger tiles reuse operands better. The last column is the share of the peak inside a full wave.
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
    auto value = static_cast<uint64_t>(size + 0.5);
    if (std::abs(size - static_cast<double>(value)) > 1e-9 * size)
      return shares[0]; // an indivisible head dimension: padded or strided operands
    worst = std::min(worst, std::countr_zero(value));
  }
  return shares[worst];
}

/// Seconds of arithmetic that takes `fullSeconds` in full waves of tiles. If the tiles of a result fill their waves
/// badly and k is long, as for weight gradients, libraries split k. Each split computes all tiles, and writes and
/// reads one more f32 partial sum.
static double wavesSeconds(double m, double n, double k, double count, double fullSeconds, const Machine &machine) {
  constexpr double bad = 0.8, leastDepth = 1024,
                   mostParts = 8; // depth of a split: shorter ones are prologue and epilogue
  double tiles = tileEfficiency(m, n, count, machine.multiprocessors), least = fullSeconds / tiles;
  for (int parts = 2; tiles < bad && parts <= mostParts && k / parts >= leastDepth; ++parts) {
    double sums = 2 * 4 * m * n * count * parts / machine.memoryBytesPerSecond;
    least = std::min(least, fullSeconds / tileEfficiency(m, n, count * parts, machine.multiprocessors) + sums);
  }
  return least;
}

double matmulSeconds(double m, double n, double k, double count, double bytes, const Machine &machine) {
  double arithmetic = 2 * m * n * k * count / (machine.peakFlops * machine.matmulEfficiency);
  if (machine.multiprocessors > 0)
    arithmetic = wavesSeconds(m, n, k, count, arithmetic / alignmentEfficiency(m, n, k, count), machine);
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

Group groupOf(Axis axis, const ParallelConfig &config, const Machine &machine, bool overExperts, DataRanks dataRanks,
              bool withoutContext) {
  int stride = 1, ranks = config.tp;
  switch (axis) {
  case Axis::Tp:
    break;
  case Axis::Ep:
    stride = config.tp, ranks = config.ep;
    break;
  case Axis::Cp:
    stride = config.tp * config.ep, ranks = config.cp;
    break;
  case Axis::Dp: // gradients are summed over the context ranks too, which lie next to each other
    stride = config.tp * config.ep, ranks = dataRanks == DataRanks::Shards ? config.zeroRanks() : config.dp;
    (withoutContext ? stride : ranks) *= config.cp;
    if (overExperts)
      stride = config.tp, ranks *= config.ep;
    if (dataRanks == DataRanks::Replicas)
      stride = config.tp * config.ep * config.cp * config.zeroRanks(), ranks = config.zeroReplicas();
    break;
  case Axis::Pp:
    stride = config.tp * config.ep * config.cp * config.dp, ranks = config.pp;
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
    // A send between neighbouring stages uses one rank's share. A ring uses the shares of all its members on a host.
    double across = axis != Axis::Pp                 ? group.perHost * machine.network.bytesPerSecond
                    : machine.sendBytesPerSecond > 0 ? machine.sendBytesPerSecond
                                                     : machine.network.bytesPerSecond;
    if (axis != Axis::Pp) {
      double slower = 1 + machine.ringSlope * std::log2(static_cast<double>(ranks) / group.perHost);
      across /= slower;
      group.networkBytesPerSecond /= slower;
    }
    group.bytesPerSecond = group.perHost > 1 ? std::min(machine.link.bytesPerSecond, across) : across;
    double share = 1.0 / group.perHost; // one of r ring steps leaves the host
    group.hopSeconds = share * machine.network.latencySeconds + (1 - share) * machine.link.latencySeconds;
  }
  return group;
}

// Returns the share of its choices for which a token is sent to another host, if each host receives it once. Example: 8
// choices among 4 hosts are on 4 (1 - (3/4)^8) = 3.6 hosts: a share of 0.45.
static double copiesShare(const Routing &routing, int hosts) {
  if (routing.choices == 0 || hosts <= 1)
    return 1;
  double reached = hosts;
  if (routing.groups > 1)
    reached = std::min(reached, routing.keptGroups * std::max(1.0, reached / routing.groups));
  return reached * (1 - std::pow(1 - 1 / reached, routing.choices)) / routing.choices;
}

bool movesTokens(const CollectiveTerm &term) {
  return term.kind == CollectiveKind::AllToAll && (term.axis == Axis::Ep || term.axis == Axis::Cp);
}

Group groupOf(const CollectiveTerm &term, const ParallelConfig &config, const Problem &problem) {
  Group group = groupOf(term, config, problem.machine);
  if (movesTokens(term) && problem.software.dispatch.oncePerHost)
    group.copiesShare = copiesShare(problem.routing, group.ranks / group.perHost);
  return group;
}

Group groupOf(const CollectiveTerm &term, const ParallelConfig &config, const Machine &machine) {
  bool isOfShards =
      (term.axis == Axis::Dp && term.kind == CollectiveKind::ReduceScatter) || term.kind == CollectiveKind::AllGather;
  return groupOf(term.axis, config, machine, term.overExperts, isOfShards ? DataRanks::Shards : DataRanks::All,
                 term.withoutContext);
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
    double across = group.perHost < n ? (n - group.perHost) / n * bytes / group.networkBytesPerSecond : 0;
    across *= group.copiesShare;
    // A host distributes the tokens that it received once to all of their experts.
    double members = group.copiesShare < 1 ? group.perHost : n;
    double inside = (group.perHost - 1) / members * bytes / group.linkBytesPerSecond;
    return std::max(inside, across) + calls * hops * group.hopSeconds;
  }
  case CollectiveKind::Send:
    return bytes / group.bytesPerSecond + calls * group.hopSeconds;
  }
  return 0;
}

double replicaSumSeconds(const CollectiveTerm &term, double bytes, const ParallelConfig &config,
                         const Machine &machine) {
  if (term.axis != Axis::Dp || term.kind != CollectiveKind::ReduceScatter || config.zeroReplicas() == 1)
    return 0;
  int shards = groupOf(term, config, machine).ranks;
  Group replicas = groupOf(Axis::Dp, config, machine, term.overExperts, DataRanks::Replicas);
  return collectiveSeconds(CollectiveKind::AllReduce, bytes / shards, term.calls, replicas);
}

double overlappedSeconds(double computeSeconds, double communicationSeconds) {
  return std::max(computeSeconds, communicationSeconds) + kCompetition * std::min(computeSeconds, communicationSeconds);
}

double boundarySeconds(const Problem &problem, const ParallelConfig &config) {
  if (config.pp <= 1)
    return 0;
  double bytes = evaluate(problem.boundaryBytes, symbolValues(problem, config));
  Group group = groupOf(Axis::Pp, config, problem.machine);
  // Neighbouring stages: members of one host come first, so most boundaries of wide stages cross hosts.
  if (config.sequenceParallel)
    bytes /= config.tp; // the sequence of the activation is split over tp
  if (!problem.boundaryScatters || config.sequenceParallel || config.tp == 1)
    return collectiveSeconds(CollectiveKind::Send, bytes, 1, group);
  return collectiveSeconds(CollectiveKind::Send, bytes / config.tp, 1, group) +
         collectiveSeconds(CollectiveKind::AllGather, bytes, 1, groupOf(Axis::Tp, config, problem.machine));
}

double tiedEmbeddingSeconds(const Problem &problem, const ParallelConfig &config) {
  if (!problem.tiedEmbedding || config.pp <= 1)
    return 0;
  Group pair = groupOf(Axis::Pp, config, problem.machine);
  pair.ranks = 2;
  double bytes = evaluate(problem.tiedBytes, symbolValues(problem, config));
  return collectiveSeconds(CollectiveKind::AllReduce, bytes, 1, pair);
}

} // namespace espalier::planner
