// Schedules with several chunks per stage: the search against brute force, chunks without layers, and pinned ones.
#include "planner/search.h"
#include "planner/search/split.h"
#include "test/planner/brute_force.h"
#include "test/planner/shapes.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <set>

using namespace espalier::planner;

namespace {

// Returns a random schedule with several chunks per stage, at most `mostChunks`.
Plan randomChunks(std::mt19937 &random, int stages, int mostChunks) {
  Plan config;
  config.pp = stages;
  config.schedule =
      std::array{Schedule::Interleaved, Schedule::ZeroBubbleV, Schedule::VHalf, Schedule::VMin}[random() % 4];
  config.virtualStages = 2;
  if (config.schedule == Schedule::Interleaved && mostChunks > 2)
    config.virtualStages += static_cast<int>(random() % (mostChunks - 1));
  config.microBatches = stages * (1 + static_cast<int>(random() % 3));
  return config;
}

Machine randomLink(std::mt19937 &random, int stages) {
  Machine machine = testMachine(1, stages);
  machine.link.bytesPerSecond = between(random, 1e9, 2e11);
  return machine;
}

// Searches with scarce memory: from just below what full recompute needs, to `most` times that.
SearchResult searchScarce(Problem &problem, std::mt19937 &random, double most) {
  SearchOptions options;
  options.all = true;
  options.relax = false;
  problem.machine.memoryBytes =
      leastBytes(problem, options) * std::uniform_real_distribution<double>(0.98, most)(random);
  return search(problem, options);
}

} // namespace

// Every number of layers per stage, any number of which recompute, with scarce memory and light or heavy ends.
TEST(SearchChunks, SplitsOverChunksEqualBruteForce) {
  std::mt19937 random(29);
  int fitting = 0, uneven = 0, mixed = 0, empty = 0;
  for (int trial = 0; trial < 200; ++trial) {
    int stages = 2 + trial % 2;
    Plan config = randomChunks(random, stages, /*mostChunks=*/3);
    int layers = config.virtualStages * stages - 2 + static_cast<int>(random() % 4);
    Machine machine = randomLink(random, stages);
    Problem problem =
        shapeProblem(gpt(layers, 512, 8, 1000 * (1 + random() % 64)), System{}, machine, config.microBatches);
    pinPipeline(problem, config);
    SearchResult result = searchScarce(problem, random, 1.12);
    double best = bruteForceUnder(problem, config);
    ASSERT_EQ(result.plans.empty(), best == std::numeric_limits<double>::infinity()) << trial;
    if (result.plans.empty())
      continue;
    ++fitting;
    Plan plan = result.plans[0].plan;
    int first = 0, classes = 0;
    for (int stage = 0; stage < stages; ++stage) {
      int total = 0;
      std::set<Recompute> kept;
      for (const StagePlan *chunk : chunksOfStage(plan, stage)) {
        total += chunk->layers;
        kept.insert(chunk->recompute.begin(), chunk->recompute.end());
        empty += chunk->layers == 0;
      }
      first = stage == 0 ? total : first;
      uneven += stage > 0 && total != first;
      classes = std::max<int>(classes, static_cast<int>(kept.size()));
    }
    mixed += classes > 1;
    EXPECT_NEAR(result.plans[0].prediction.stepSeconds, best, best * 1e-8) << trial;
    EXPECT_TRUE(result.plans[0].prediction.fits()) << trial;
    EXPECT_TRUE(result.statistics.optimal) << trial;
  }
  EXPECT_GT(fitting, 120);
  EXPECT_GT(uneven, 50);
  EXPECT_GT(mixed, 20);
  EXPECT_GT(empty, 10);
}

// Layers of several kinds, with any range on each chunk. The local search mostly finds the best plan, and always a
// valid one; the bound holds.
TEST(SearchChunks, RangesOfUnlikeLayersAreNearBruteForce) {
  std::mt19937 random(31);
  int fitting = 0, uneven = 0, mixed = 0, same = 0;
  for (int trial = 0; trial < 80; ++trial) {
    int stages = 2 + trial % 2;
    Plan config = randomChunks(random, stages, /*mostChunks=*/2);
    int layers = 2 * stages - 1 + static_cast<int>(random() % 3);
    Machine machine = randomLink(random, stages);
    Problem problem = trial % 2 ? mixedLayers(random, layers, machine, config.microBatches)
                                : distinctLayers(layers, 512, 8, machine, config.microBatches);
    pinPipeline(problem, config);
    SearchResult result = searchScarce(problem, random, 1.3);
    double best = bruteForceUnder(problem, config);
    ASSERT_EQ(result.plans.empty(), best == std::numeric_limits<double>::infinity()) << trial;
    std::vector<int> fewest(2 * stages, 1), counts;
    fewest.front() = fewest.back() = 0;
    int splits = 0;
    totals(layers, fewest, counts, [&] { ++splits; });
    std::vector<int> kinds = kindsOfLayers(problem);
    if (std::ranges::count(kinds, kinds.front()) < layers) // by chance, all layers may be alike
      EXPECT_EQ(result.statistics.space, splits) << trial;
    if (result.plans.empty())
      continue;
    ++fitting;
    const std::vector<StagePlan> &chunks = result.plans[0].plan.stages;
    auto [least, most] = std::ranges::minmax(chunks, {}, &StagePlan::layers);
    uneven += most.layers > least.layers + 1;
    mixed += result.plans[0].prediction.time.recompute > 0;
    double seconds = result.plans[0].prediction.stepSeconds;
    EXPECT_GE(seconds, best * (1 - 1e-8)) << trial;
    EXPECT_LE(seconds, best * 1.02) << trial;
    same += seconds <= best * (1 + 1e-8);
    EXPECT_LE(result.statistics.lowerBoundSeconds, best * (1 + 1e-9)) << trial;
    EXPECT_TRUE(result.plans[0].prediction.fits()) << trial;
  }
  EXPECT_GT(fitting, 50);
  EXPECT_GE(same, fitting * 9 / 10);
  EXPECT_GT(uneven, 8);
  EXPECT_GT(mixed, 5);
}

// Under any budget and any limit of other plans, bounds hold and the result is a valid plan.
TEST(SearchChunks, BoundsHoldIfTheBudgetEnds) {
  std::mt19937 random(37);
  int fitting = 0, open = 0, proved = 0;
  for (int trial = 0; trial < 600; ++trial) {
    int kind = trial % 6, stages = kind == 5 ? 3 : 2;
    Plan config = randomChunks(random, stages, /*mostChunks=*/kind == 0 ? 3 : 2);
    if (config.offloadActivations = kind > 3; kind == 5) {
      config.schedule = std::array{Schedule::OneFOneB, Schedule::GPipe, Schedule::ZeroBubbleH1}[random() % 3];
      config.virtualStages = 1;
    }
    int chunks = stages * config.virtualStages, layers = chunks + static_cast<int>(random() % 2);
    Machine machine = withHost(randomLink(random, stages), 2e12, between(random, 3e10, 3e12));
    Problem problem = kind % 3 && trial % 12 < 9 ? mixedLayers(random, layers, machine, config.microBatches)
                                                 : shapeProblem(gpt(layers, 512, 8, 1000 * (1 + random() % 64)),
                                                                System{}, machine, config.microBatches);
    pinPipeline(problem, config);
    problem.pins.zero = 0;
    problem.pins.offloadOptimizer = false;
    problem.pins.offloadActivations = config.offloadActivations;
    if (kind == 2 || kind == 3) {
      problem.pins.stageLayers = std::vector<int>(chunks, 1);
      for (int left = layers - chunks; left > 0; --left)
        ++(*problem.pins.stageLayers)[random() % chunks];
    }
    SearchOptions options;
    options.all = true;
    problem.machine.memoryBytes = leastBytes(problem, options) * between(random, 0.99, 1.5);
    double best = bruteForceUnder(problem, config);
    fitting += best < std::numeric_limits<double>::infinity();
    std::vector<int> kinds = kindsOfLayers(problem);
    bool areAlike = std::ranges::count(kinds, kinds.front()) == layers;
    bool isLocal =
        !areAlike && config.virtualStages > 1 && !problem.pins.stageLayers; // then the bound is the work bound
    for (int64_t budget : {0, 100, 1000, 10'000, 1'000'000})
      for (double limit : {std::numeric_limits<double>::infinity(), 1.1 * best, 0.97 * best}) {
        StageOptions stageOptions(problem, config);
        SplitResult result = bestSplit(problem, stageOptions, limit, budget);
        EXPECT_LE(result.lowerBound, best * (1 + 1e-9)) << trial << " " << budget;
        EXPECT_GE(result.seconds, best * (1 - 1e-9)) << trial << " " << budget;
        EXPECT_GE(result.lowerBound, 0);
        bool isProved = result.lowerBound >= std::min(result.seconds, limit) * (1 - 1e-8);
        (isProved ? proved : open) += 1;
        if (budget == 1'000'000 && !isLocal)
          EXPECT_TRUE(isProved) << trial << " " << kind << " " << limit;
      }
  }
  EXPECT_GT(fitting, 450);
  EXPECT_GT(open, 200);
  EXPECT_GT(proved, 5000);
}

// Nine different layers: some choices are dropped, and the bound is that of evenly spread work.
TEST(SearchChunks, BoundsHoldIfChoicesAreDropped) {
  std::mt19937 random(41);
  int open = 0;
  for (int trial = 0; trial < 8; ++trial) {
    const int layers = 9;
    Plan config;
    config.offloadActivations = true;
    config.microBatches = 1 + static_cast<int>(random() % 4);
    config.schedule = std::array{Schedule::OneFOneB, Schedule::GPipe, Schedule::ZeroBubbleH1}[random() % 3];
    Machine machine = withHost(testMachine(1, 1), 2e12, between(random, 3e10, 3e12));
    Problem problem = distinctLayers(layers, 512, 8, machine, config.microBatches);
    if (trial % 2)
      problem.pins.stageLayers = std::vector<int>{layers};
    // Memory for kept values, between the least and the most.
    CostTable costs = buildCostTable(problem, config);
    double least = 0, most = 0;
    for (int kind : costs.layerKinds) {
      least += costs.kinds[kind].savedBytes[2];
      most += costs.kinds[kind].savedBytes[0];
    }
    int held = stagePeaks(config.schedule, 0, 1, static_cast<int>(config.microBatches), 1).moments.front().front();
    problem.machine.host.bytes = held * (least + (most - least) * between(random, 0.05, 0.8));
    Plan plan = config;
    plan.stages = {{0, layers, std::vector<Recompute>(layers)}};
    double best = std::numeric_limits<double>::infinity();
    for (const std::vector<Recompute> &kept : keptChoices(kindsOfLayers(problem))) {
      plan.stages[0].recompute = kept;
      PricedPlan priced = pricePlan(problem, plan);
      if (priced.prediction.fits())
        best = std::min(best, priced.prediction.stepSeconds);
    }
    for (int64_t budget : {0, 1'000'000}) {
      StageOptions stageOptions(problem, config);
      SplitResult result = bestSplit(problem, stageOptions, std::numeric_limits<double>::infinity(), budget);
      EXPECT_LE(result.lowerBound, best * (1 + 1e-9)) << trial;
      EXPECT_GE(result.seconds, best * (1 - 1e-9)) << trial;
      EXPECT_GT(result.lowerBound, 0.95 * result.seconds) << trial;
      open += result.lowerBound < result.seconds * (1 - 1e-8);
    }
  }
  EXPECT_GT(open, 0);
}

// 96 layers on 16 stages of four chunks: 1.5 layers per chunk. No split is as good as equal stages would be.
TEST(SearchChunks, UnevenChunksOfManyStagesAreProved) {
  Problem problem = shapeProblem(gpt(96, 12288, 96), System{}, testMachine(128, 8), 1536);
  problem.pins.dp = problem.pins.tp = 8;
  problem.pins.pp = 16;
  problem.pins.schedule = Schedule::Interleaved;
  problem.pins.virtualStages = 4;
  problem.pins.microBatchSize = 1;
  SearchOptions all;
  all.all = true;
  SearchResult result = search(problem, all);
  ASSERT_FALSE(result.plans.empty());
  EXPECT_TRUE(result.statistics.optimal);
}

// The outer chunks hold the embedding and the head instead of a layer: six layers on two stages of four chunks.
TEST(SearchChunks, PinnedChunksMayBeWithoutLayers) {
  Problem problem = shapeProblem(gpt(6, 1024, 16), System{}, testMachine(1, 4), 32);
  SearchOptions all;
  all.all = true;
  problem.pins.stageLayers = std::vector<int>{0, 1, 1, 1, 1, 1, 1, 0};
  problem.pins.pp = 2;
  problem.pins.virtualStages = 4;
  SearchResult result = search(problem, all);
  ASSERT_FALSE(result.plans.empty());
  EXPECT_TRUE(result.statistics.optimal);
  const PricedPlan &best = result.plans[0];
  EXPECT_EQ(best.plan.schedule, Schedule::Interleaved);
  ASSERT_EQ(best.plan.stages.size(), 8u);
  EXPECT_EQ(best.plan.stages[0].layers, 0);
  EXPECT_EQ(best.plan.stages[7].layers, 0);
  EXPECT_EQ(violations(problem, best.plan), std::vector<std::string>{});
  EXPECT_NEAR(best.prediction.time.total(), best.prediction.stepSeconds, 1e-9 * best.prediction.stepSeconds);
  problem.pins.virtualStages = 3; // eight chunks do not make two stages of three
  EXPECT_FALSE(search(problem, all).errors.empty());
  problem.pins.virtualStages = {};
  problem.pins.schedule = Schedule::OneFOneB; // one chunk per stage: every stage needs a layer
  EXPECT_TRUE(search(problem, all).plans.empty());
}

// Llama 3.1 405B has 126 layers, so that embedding and head count as one layer each: 16 stages of 8 chunks.
TEST(SearchChunks, EndsWithoutLayersAreInTheSpace) {
  Problem problem = shapeProblem(gpt(126, 1024, 16), System{}, testMachine(2, 8), 64);
  problem.pins.pp = 16;
  problem.pins.schedule = Schedule::Interleaved;
  problem.pins.virtualStages = 8;
  SearchOptions all;
  all.all = true;
  SearchResult result = search(problem, all);
  ASSERT_FALSE(result.plans.empty());
  EXPECT_TRUE(result.statistics.optimal);
  const std::vector<StagePlan> &chunks = result.plans[0].plan.stages;
  ASSERT_EQ(chunks.size(), 128u);
  for (size_t i = 0; i < chunks.size(); ++i)
    EXPECT_EQ(chunks[i].layers, i > 0 && i + 1 < chunks.size()) << i;
}

// Pinned chunks recompute as few layers as necessary.
TEST(SearchChunks, PinnedChunksRecomputeOnlyNecessaryLayers) {
  Problem problem = shapeProblem(gpt(12, 1024, 16), System{}, testMachine(1, 4), 32);
  problem.pins.stageLayers = std::vector<int>{2, 4, 4, 2};
  problem.pins.pp = 2;
  problem.pins.schedule = Schedule::ZeroBubbleV;
  SearchOptions all;
  all.all = true;
  all.relax = false;
  bool repeated = false;
  for (double bytes : {1e9, 1.5e9, 2e9, 3e9, 4e9, 6e9, 8e9, 16e9}) {
    problem.machine.memoryBytes = bytes;
    SearchResult result = search(problem, all);
    if (result.plans.empty())
      continue;
    EXPECT_TRUE(result.plans[0].prediction.fits());
    EXPECT_TRUE(result.statistics.optimal);
    repeated = repeated || result.plans[0].prediction.time.recompute > 0;
  }
  EXPECT_TRUE(repeated);
}
