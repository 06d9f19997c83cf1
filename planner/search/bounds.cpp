#include "planner/search/bounds.h"

#include <algorithm>
#include <cmath>

namespace espalier::planner {

namespace {

// Adds `count` segments, each with its least values over its recompute classes. Embedding and head (not `isLayer`) do
// not recompute.
void addSegments(const SegmentCost &cost, const std::optional<Recompute> &pinned, bool isLayer, double count,
                 WorkSum &sum) {
  double least = kInfinity, most = 0, saved = least, traversal = least;
  sum.once += count * cost.step.total();
  for (Recompute recompute : kRecomputes) {
    if (recompute != (isLayer ? pinned.value_or(recompute) : Recompute::None))
      continue;
    double forward = cost.forward.total() + cost.forwardTransfer[recompute];
    double rest = cost.backward.total() + cost.weight.total();
    double seconds = forward + rest + cost.recompute[recompute].total() + cost.weightTransfer[recompute];
    least = std::min(least, seconds);
    most = std::max(most, seconds);
    if (seconds > 0)
      sum.forwardShare = std::min(sum.forwardShare, forward / seconds);
    traversal = std::min(traversal, forward + cost.backward.total() + cost.recompute[recompute].total());
    saved = std::min(saved, cost.keepsSavedOnDevice(recompute) ? cost.savedBytes[recompute] : 0);
  }
  sum.work += count * least;
  sum.traversal += count * traversal;
  if (!isLayer)
    return;
  sum.layerWork += count * least;
  sum.mostLayerSeconds = std::max(sum.mostLayerSeconds, most);
  sum.savedBytes += count * saved;
  if (cost.keepsParametersOnDevice())
    sum.stateBytes += count * (cost.parameterBytes + cost.gradientBytes);
  if (cost.keepsOptimizerOnDevice())
    sum.stateBytes += count * cost.optimizerBytes;
}

// Calls visit(kind, isLayer, count) for embedding, head and the layers of each kind, as long as it returns true.
template <typename Visit> void visitSegments(const Problem &problem, Visit visit) {
  std::vector<double> layers(problem.kinds.size());
  for (const LayerRun &run : problem.layers)
    layers[run.kind] += run.count;
  bool goesOn = true;
  for (int edge : {problem.embed, problem.head})
    goesOn = goesOn && (edge < 0 || visit(edge, /*isLayer=*/false, 1));
  for (size_t kind = 0; goesOn && kind < layers.size(); ++kind)
    goesOn = layers[kind] <= 0 || visit(static_cast<int>(kind), /*isLayer=*/true, layers[kind]);
}

// Whether two choices differ only in offloading and in the order of context ranks.
bool areAlikeOnDevice(ParallelConfig a, const ParallelConfig &b) {
  a.offloadOptimizer = b.offloadOptimizer;
  a.offloadActivations = b.offloadActivations;
  a.offloadParameters = b.offloadParameters;
  a.zigzag = b.zigzag;
  return a == b;
}

// State bytes and the bytes kept by `inFlight` chunks, both spread evenly.
double spreadBytes(const WorkSum &sum, const Machine &machine, double inFlight, int stages, int chunksPerStage) {
  return (sum.stateBytes + inFlight * sum.savedBytes / chunksPerStage) / stages + machine.reservedBytes;
}

// The slack covers rounding.
bool mayFit(const WorkSum &sum, const Machine &machine, double inFlight, int stages, int chunksPerStage) {
  return spreadBytes(sum, machine, inFlight, stages, chunksPerStage) <= machine.memoryBytes * (1 + 1e-9);
}

// Returns a lower bound of the chunks that some stage holds at once.
double leastInFlight(const ParallelConfig &config) {
  return config.schedule == Schedule::GPipe ? static_cast<double>(config.microBatches) : 1;
}

} // namespace

WorkSum sumWork(const Problem &problem, const CostTable &table, const std::optional<Recompute> &recompute) {
  WorkSum sum{.boundarySeconds = table.boundarySeconds};
  visitSegments(problem, [&](int kind, bool isLayer, double count) {
    const SegmentCost &cost = isLayer ? table.kinds[kind] : kind == problem.embed ? table.embed : table.head;
    addSegments(cost, recompute, isLayer, count, sum);
    return true;
  });
  return sum;
}

std::vector<std::optional<WorkSum>> sumWorks(const Problem &problem, std::span<const ParallelConfig> choices,
                                             const std::function<int(int)> &mostChunks) {
  std::vector<std::optional<WorkSum>> sums;
  std::optional<SegmentCosts> costs; // without offloading
  for (size_t i = 0; i < choices.size(); ++i) {
    const ParallelConfig &config = choices[i];
    if (i == 0 || !areAlikeOnDevice(choices[i - 1], config))
      costs.emplace(problem, config);
    costs->reorder(config.zigzag);
    std::optional<WorkSum> &sum = sums.emplace_back(WorkSum{.boundarySeconds = boundarySeconds(problem, config)});
    int chunks = mostChunks(config.pp);
    visitSegments(problem, [&](int kind, bool isLayer, double count) {
      if (!mayFit(*sum, problem.machine, /*inFlight=*/1, config.pp, chunks))
        return false;
      std::optional<SegmentCost> cost = costs->of(kind);
      if (cost) {
        addOffload(*cost, problem.machine, config, isLayer);
        addSegments(*cost, config.recompute, isLayer, count, *sum);
      } else {
        sum.reset();
      }
      return cost.has_value();
    });
  }
  return sums;
}

namespace {

// Seconds to transfer one micro-batch between all stages, forward and backward.
double sentSeconds(const WorkSum &sum, const ParallelConfig &config, int chunks) {
  int pairs = isVShaped(config.schedule) ? 2 * (config.pp - 1) : config.pp > 1 ? config.pp * chunks - 1 : 0;
  return 2.0 * pairs * sum.boundarySeconds;
}

// Returns the least T for stages with work x_s (sum: `work`) and work once per step y_s (sum: `once`). Stage s waits
// for a share of the work above: share * (x_0 + .. + x_(s-1)) + m x_s + y_s <= T for all s. With z_s = x_s + y_s / m,
// all are equal for z_s = (T + share / m * once) / m (1 - share / m)^s. Their sum is at least work + once / m.
// Example: 2 stages, 4 micro-batches, work 3 s, share 1 / 3: stages of 1.565 and 1.435 s end together at 6.261 s, not
// 6 s.
double warmUpBound(double share, double work, double once, double m, double p) {
  if (share <= 0)
    return 0;
  return share * (work + once / m) / (1 - std::pow(1 - share / m, p)) - share / m * once;
}

// Bound for interleaved schedules with any layers on each chunk. Before its first forward of chunk c, a stage has run
// p forwards of each earlier chunk, and their backwards run last. A path thus enters and leaves stage s by chunk c:
//     T >= sum over chunks before c of w_0 + .. + w_(p-1) + w_(c,0) + .. + w_(c,s-1) + m w_s - p (those on stage s)
// Averaged over all s and c: m W / p + sum over i of w_i (p - 1 - i) / (v p). This is least when the last n = m W / T
// stages have all they may, T / m. Hence T >= m W / p + W (n - 1) / (2 v p). Example: W = 8 s, m = 4, p = v = 2: 16.9
// s, not 16 s.
double interleavedBound(double work, double m, double p, double chunks) {
  double each = work / (2 * chunks * p), half = (m * work / p - each) / 2;
  return half + std::sqrt(half * half + each * m * work);
}

} // namespace

double leastBytes(const WorkSum &sum, const Machine &machine, const ParallelConfig &config) {
  return spreadBytes(sum, machine, leastInFlight(config), config.pp, chunksOf(config.schedule, config.virtualStages));
}

double workBound(const WorkSum &sum, const Machine &machine, const ParallelConfig &config, int chunks) {
  if (!mayFit(sum, machine, /*inFlight=*/1, config.pp, chunks))
    return kInfinity;
  return machine.devicesPerCore() * (static_cast<double>(config.microBatches) * sum.work + sum.once) / config.pp;
}

double relaxedBound(const WorkSum &sum, const Machine &machine, const ParallelConfig &config, bool chunksAlike) {
  int chunks = chunksOf(config.schedule, config.virtualStages);
  double m = static_cast<double>(config.microBatches), p = config.pp;
  if (!mayFit(sum, machine, leastInFlight(config), config.pp, chunks))
    return kInfinity;
  double sent = sentSeconds(sum, config, chunks), work = sum.work + sent;
  double bound = machine.devicesPerCore() * (m * work + sum.once) / p;
  // All forwards, then all backwards: one micro-batch through all stages, plus m - 1 times the longest forward and
  // backward, which are at least the mean.
  if (config.schedule == Schedule::GPipe)
    return std::max(bound, work * (m + p - 1) / p);
  if (chunks > 1 && !chunksAlike) // the first chunk of a stage may be almost empty
    return std::max(bound, config.schedule == Schedule::Interleaved ? interleavedBound(work, m, p, chunks)
                                                                    : sum.traversal + sent);
  // Stage s waits for the forwards of the first micro-batch on one chunk of each stage above. Half of the sends go
  // forward. A V ends on its first stage, so that the head is not part of the first chunks.
  double share = std::min(sum.forwardShare, sum.boundarySeconds > 0 ? 0.5 : 1) / chunks;
  double first = isVShaped(config.schedule) ? sum.layerWork + sent : work;
  // The first chunk of a stage has at least its share of layers; on the first stage of interleaved schedules it is
  // rounded down.
  double less = config.schedule == Schedule::Interleaved ? (chunks - 1.0) / chunks * sum.mostLayerSeconds : 0;
  bound = std::max(bound, warmUpBound(share, first, sum.once, m, p) - less);
  // Without split weight gradients, the last backward returns to the first stage, which does not send.
  if (config.schedule == Schedule::OneFOneB)
    bound = std::max(bound, warmUpBound(1, work, 0, m, p));
  if (config.schedule == Schedule::Interleaved)
    bound = std::max(bound, warmUpBound(1.0 / chunks, work, 0, m, p) - sum.boundarySeconds - less);
  return bound;
}

} // namespace espalier::planner
