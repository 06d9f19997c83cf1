// Chains over ranges of layers: never longer than under any choice of what layers keep that fits, whatever a byte
// counts.
#include "planner/search/range_bounds.h"
#include "test/planner/brute_force.h"
#include "test/planner/shapes.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <numeric>
#include <random>

using namespace espalier::planner;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Pipelines of unlike layers, each sort of their bytes offloaded or not, with memory from a little more than what is
// needed.
struct Scarce {
  explicit Scarce(std::mt19937 &random, int trial) {
    axes.pp = 2;
    axes.offloadActivations = trial % 2;
    axes.schedule = std::array{Schedule::OneFOneB,    Schedule::GPipe,       Schedule::ZeroBubbleH1,
                               Schedule::Interleaved, Schedule::ZeroBubbleV, Schedule::VMin}[random() % 6];
    axes.virtualStages = chunksOf(axes.schedule, 2);
    axes.microBatches = 2 * (1 + static_cast<int>(random() % 3));
    layers = 2 * axes.virtualStages + static_cast<int>(random() % 3);
    if (trial % 3 == 2) { // of more layers than pass through the device at once
      axes.zero = 3;
      axes.offloadOptimizer = axes.offloadParameters = true;
      layers += 4;
    }
    Machine machine = withHost(testMachine(1, 2), 2e12, between(random, 3e10, 3e12));
    problem = mixedLayers(random, layers, machine, axes.microBatches);
    pinPipeline(problem, axes);
    if (axes.offloadParameters) // that take more than what is kept
      for (SegmentKind &kind : problem.kinds)
        for (PatternTerms &terms : kind.patterns)
          for (ParameterTerm &term : terms.parameters)
            term.parameterBytes *= 20, term.gradientBytes *= 20;
    problem.pins.zero = axes.zero;
    problem.pins.offloadOptimizer = axes.offloadOptimizer;
    problem.pins.offloadActivations = axes.offloadActivations;
    problem.pins.offloadParameters = axes.offloadParameters;
    SearchOptions options;
    options.all = true;
    problem.machine.memoryBytes = leastBytes(problem, options) * between(random, 1.0, 1.6);
    problem.machine.host.bytes = between(random, 1e7, 4e8);
    if (axes.offloadParameters) { // two ranks share it
      CostTable costs = buildCostTable(problem, axes);
      double state = costs.embed.parameterBytes + costs.embed.gradientBytes + costs.embed.optimizerBytes;
      state += costs.head.parameterBytes + costs.head.gradientBytes + costs.head.optimizerBytes;
      for (int kind : costs.layerKinds)
        state += costs.kinds[kind].parameterBytes + costs.kinds[kind].gradientBytes + costs.kinds[kind].optimizerBytes;
      problem.machine.host.bytes += state * between(random, 1.0, 1.6);
    }
  }
  Plan axes;
  int layers = 0;
  Problem problem;
};

// A chain of any actions; chains are mostly of one stage.
ChainMean randomChain(std::mt19937 &random, int chunks) {
  ChainMean chain;
  for (int i = 0; i < chunks; ++i)
    chain.times.push_back({random() % 4 * 1.0, random() % 4 * 1.0, random() % 4 * 1.0});
  chain.ends = {0.25, 0.75};
  return chain;
}

} // namespace

TEST(RangeBounds, NoChoiceThatFitsTakesLess) {
  std::mt19937 random(47);
  int splits = 0, tight = 0, near = 0;
  for (int trial = 0; trial < 600; ++trial) {
    Scarce scarce(random, trial);
    StageOptions stageOptions(scarce.problem, scarce.axes);
    ChunkPlayer player(stageOptions);
    ChunkOptions options(scarce.problem, stageOptions);
    RangeBounds bounds(scarce.problem, stageOptions, player);
    bounds.readRoom();
    ChainMean chain = randomChain(random, bounds.chunks()), priced = chain;
    BytePrices shares = bounds.noPrices();
    for (std::vector<double> &stage : shares)
      for (double &share : stage)
        share = random() % 2 * between(random, 0.01, 0.5);
    bounds.tabulate(chain, bounds.noPrices());
    double all = std::accumulate(chain.edges.begin(), chain.edges.end(), 0.0) + chain.before[0].back();
    bounds.tabulate(priced, bounds.prices(shares, all));
    std::vector<int> counts, fewest(bounds.chunks(), 1);
    totals(scarce.layers, fewest, counts, [&] {
      double least = 0, ofChoices = 0, free = 0, withPrices = 0;
      for (int stage = 0; stage < 2; ++stage) {
        std::vector<LayerRange> ranges;
        for (int chunk = 0; chunk < bounds.chunks() / 2; ++chunk) {
          int i = player.position(stage, chunk), first = std::accumulate(counts.begin(), counts.begin() + i, 0);
          ranges.push_back({first, counts[i]});
          free += chain.seconds(i, first, counts[i]);
          withPrices += priced.seconds(i, first, counts[i]);
        }
        double fastest = kInfinity;
        std::vector<RepeatedLayers> head;
        repeats(layersByKind(stageOptions.table(), ranges), head, [&] {
          if (ChunkOption option = options.price(stage, ranges, head); option.fits)
            fastest = std::min(fastest, bounds.seconds(chain, stage, option));
        });
        EXPECT_LE(bounds.leastOn(chain, stage, ranges), fastest * (1 + 1e-9)) << trial;
        least += bounds.leastOn(chain, stage, ranges);
        ofChoices += fastest;
      }
      if (ofChoices == kInfinity)
        return;
      ++splits;
      EXPECT_LE(free, least * (1 + 1e-9)) << trial;
      EXPECT_LE(withPrices, ofChoices * (1 + 1e-9)) << trial;
      tight += least > free * (1 + 1e-6); // room counts
      near += least > 0.97 * ofChoices;
    });
  }
  EXPECT_GT(splits, 300);
  EXPECT_GT(tight, 300);
  EXPECT_GT(near, splits / 4);
}
