// Compares the search with brute force on random small problems. Also tests pins, threads and the certificate.
#include "planner/model/schedule.h"
#include "planner/search.h"
#include "planner/search/bounds.h"
#include "planner/search/split.h"
#include "planner/search/stage_options.h"
#include "test/planner/brute_force.h"
#include "test/planner/shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>

using namespace espalier::planner;

namespace {

// Comparisons with brute force take most of the time. ESPALIER_LONG=1 triples their number.
const int kTimes = std::getenv("ESPALIER_LONG") ? 3 : 1;

// Tries every way to offload under the config of a plan, if its machine can.
double bruteForceOffloading(const Problem &problem, Plan plan, bool all) {
  double best = std::numeric_limits<double>::infinity();
  for (int flags = 0; flags < (problem.machine.canOffload() ? 8 : 1); ++flags) {
    plan.offloadOptimizer = flags & 1;
    plan.offloadActivations = flags & 2;
    plan.offloadParameters = flags & 4;
    if (violations(problem, plan).empty() && (all || problem.capability.runs(plan)))
      best = std::min(best, bruteForceUnder(problem, plan));
  }
  return best;
}

// Tries both shard groups of ZeRO 3 without a pipeline: all of dp, and the ranks of dp on one host.
double bruteForceGroups(const Problem &problem, Plan plan, bool all) {
  plan.zeroGroup = 0;
  double best = bruteForceOffloading(problem, plan, all);
  int replica = plan.tp * plan.cp * plan.ep, devices = problem.machine.devicesPerHost;
  bool isFree = plan.zero == 3 && plan.pp == 1 && !problem.pins.zero && !problem.pins.zeroGroup;
  for (plan.zeroGroup = 2; isFree && plan.zeroGroup < plan.dp; ++plan.zeroGroup)
    if (plan.zeroGroup * replica <= devices && (plan.zeroGroup + 1) * replica > devices)
      best = std::min(best, bruteForceOffloading(problem, plan, all));
  return best;
}

// Tries every flag, schedule and number of chunks on one mesh with one micro-batch size.
double bruteForceOnMesh(const Problem &problem, Plan plan, bool all) {
  double best = std::numeric_limits<double>::infinity();
  for (bool sequenceParallel : {false, true})
    for (int zero = 0; zero <= 3; ++zero)
      for (Schedule schedule : kSchedules) {
        int most = schedule == Schedule::Interleaved ? problem.layerCount() + 2 : 2; // others have one or two
        for (plan.virtualStages = 1; plan.virtualStages <= most; ++plan.virtualStages) {
          plan.sequenceParallel = sequenceParallel;
          plan.zero = zero;
          plan.schedule = schedule;
          best = std::min(best, bruteForceGroups(problem, plan, all));
        }
      }
  return best;
}

double bruteForce(const Problem &problem, bool all) {
  double best = std::numeric_limits<double>::infinity();
  int devices = problem.machine.devices();
  for (int tp = 1; tp <= devices; ++tp)
    for (int pp = 1; tp * pp <= devices; ++pp)
      for (int both = 0; both < devices * devices; ++both) {
        int cp = both / devices + 1, ep = both % devices + 1;
        if (devices % (tp * pp * cp * ep) != 0)
          continue;
        for (int64_t size = 1; size <= problem.globalBatch; ++size) {
          Plan plan;
          plan.tp = tp, plan.pp = pp, plan.cp = cp, plan.ep = ep, plan.dp = devices / tp / pp / cp / ep;
          plan.microBatchSize = size;
          plan.microBatches = problem.globalBatch / plan.replicas() / size;
          if (plan.globalBatch() == problem.globalBatch)
            best = std::min(best, bruteForceOnMesh(problem, plan, all));
        }
      }
  return best;
}

// Returns whether the search finds a plan exactly if brute force does, and that plan is as fast, valid and proved.
bool isBest(const Problem &problem, const SearchResult &result, double best) {
  bool hasPlan = best < std::numeric_limits<double>::infinity();
  EXPECT_EQ(!result.plans.empty(), hasPlan);
  if (result.plans.empty() || !hasPlan)
    return false;
  const PricedPlan &found = result.plans[0];
  EXPECT_NEAR(found.prediction.stepSeconds, best, best * 1e-8);
  EXPECT_TRUE(found.prediction.fits());
  EXPECT_EQ(violations(problem, found.plan), std::vector<std::string>{});
  EXPECT_TRUE(result.statistics.optimal);
  EXPECT_LE(result.statistics.lowerBoundSeconds, best * (1 + 1e-12));
  EXPECT_LE(result.statistics.lowerBoundSeconds, found.prediction.stepSeconds);
  return true;
}

// A random small model on 1 to 6 devices with memory that is often scarce.
Problem randomProblem(std::mt19937 &random) {
  auto pick = [&](std::initializer_list<int> list) { return list.begin()[random() % list.size()]; };
  ModelShape shape = gpt(1 + random() % 5, 64 * pick({1, 2, 3}), pick({1, 2, 4}), 1000 * pick({1, 8, 64}), 128);
  System system;
  system.fusedAttention = random() % 2;
  Machine machine = testMachine(pick({1, 1, 2}), pick({1, 2, 3}));
  machine.memoryBytes = std::exp(std::uniform_real_distribution<double>(std::log(5e6), std::log(5e9))(random));
  machine.peakFlops = std::exp(std::uniform_real_distribution<double>(std::log(1e11), std::log(3e14))(random));
  machine.launchSeconds = 1e-7;
  if (random() % 2) {
    double speed = std::exp(std::uniform_real_distribution<double>(std::log(1e8), std::log(1e12))(random));
    machine = withHost(machine, machine.memoryBytes * pick({1, 4, 16}), speed, pick({1, 2}));
  }
  Problem problem = shapeProblem(shape, system, machine, pick({1, 2, 4, 6}));
  if (machine.canOffload() && random() % 2) { // a little more or less than needed without offloading
    SearchOptions options;
    options.all = true;
    Problem none = problem;
    none.pins.offloadOptimizer = none.pins.offloadActivations = false;
    if (double least = leastBytes(none, options); least > 0)
      problem.machine.memoryBytes = least * (0.7 + 0.1 * pick({0, 1, 2, 4}));
    problem.machine.host.bytes = problem.machine.memoryBytes * pick({1, 4, 16});
  }
  return problem;
}

} // namespace

TEST(Search, FindsWhatBruteForceFinds) {
  std::mt19937 random(11);
  int fitting = 0, offloading = 0, onlyOffloading = 0;
  for (int trial = 0; trial < 100 * kTimes; ++trial) {
    SCOPED_TRACE(trial);
    Problem problem = randomProblem(random);
    SearchOptions options;
    options.all = trial % 2;
    options.relax = false;
    SearchResult result = search(problem, options);
    ASSERT_TRUE(result.errors.empty()) << result.errors.front();
    if (!isBest(problem, result, bruteForce(problem, options.all)))
      continue;
    ++fitting;
    if (!options.all || !problem.machine.canOffload())
      continue;
    offloading += result.plans[0].plan.offloads();
    problem.pins.offloadOptimizer = problem.pins.offloadActivations = false;
    options.diagnose = false;
    onlyOffloading += search(problem, options).plans.empty();
  }
  EXPECT_GT(fitting, 33 * kTimes);
  EXPECT_GT(offloading, 5 * kTimes);
  EXPECT_GT(onlyOffloading, kTimes);
}

// Deep models with a small vocabulary on one or two devices, whose memory holds about what the parameters need.
TEST(Search, FindsWhatBruteForceFindsIfParametersMustBeOffloaded) {
  std::mt19937 random(17);
  auto between = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  int fitting = 0, parameters = 0, kept = 0;
  for (int trial = 0; trial < 16 * kTimes; ++trial) {
    SCOPED_TRACE(trial);
    ModelShape shape = gpt(4 + random() % 3, 64 * (2 + random() % 2), 2, 1000, 64);
    Machine machine =
        withHost(testMachine(1, 1 + random() % 2), 1e12, std::exp(between(std::log(1e8), std::log(1e11))));
    machine.peakFlops = std::exp(between(std::log(1e11), std::log(3e14)));
    machine.launchSeconds = 1e-7;
    Problem problem = shapeProblem(shape, System{}, machine, 2 + 2 * (random() % 2));
    SearchOptions options;
    options.all = true;
    options.relax = false;
    Problem without = problem;
    without.pins.offloadParameters = false;
    problem.machine.memoryBytes = leastBytes(without, options) * between(0.7, 1.2);
    SearchResult result = search(problem, options);
    if (!isBest(problem, result, bruteForce(problem, options.all)))
      continue;
    const Plan &plan = result.plans[0].plan;
    ++fitting;
    parameters += plan.offloadParameters;
    kept += plan.offloadParameters && plan.offloadActivations;
  }
  EXPECT_GT(fitting, 8 * kTimes);
  EXPECT_GT(parameters, 5 * kTimes);
  EXPECT_GE(kept, kTimes);
}

// Pipelines of unequal layers over a slow network with much work once per step: every split with every recompute class
// for each layer.
TEST(Search, SplitsOfUnlikeLayersEqualBruteForce) {
  std::mt19937 random(23);
  int fitting = 0, mixed = 0;
  for (int trial = 0; trial < 300; ++trial) {
    SCOPED_TRACE(trial);
    int stages = 1 + trial % 3, layers = stages + static_cast<int>(random() % 4);
    Machine machine = testMachine(1, 2 * stages);
    machine.link.bytesPerSecond = between(random, 1e9, 2e11);
    int64_t batch = 2 * (1 + trial % 7);
    Problem problem =
        trial % 2 ? mixedLayers(random, layers + 1, machine, batch) : distinctLayers(layers, 512, 8, machine, batch);
    problem.pins.pp = stages;
    problem.pins.tp = problem.pins.cp = problem.pins.ep = 1;
    problem.pins.microBatchSize = 1;
    problem.pins.zero = 0;
    problem.pins.schedule = std::array{Schedule::OneFOneB, Schedule::GPipe, Schedule::ZeroBubbleH1}[random() % 3];
    SearchOptions options;
    options.all = true;
    options.relax = false;
    // From a little less than full recompute needs.
    problem.machine.memoryBytes =
        leastBytes(problem, options) * std::uniform_real_distribution<double>(0.95, 1.5)(random);
    SearchResult result = search(problem, options);
    Plan config;
    config.dp = 2, config.pp = stages, config.microBatches = problem.globalBatch / 2;
    config.schedule = *problem.pins.schedule;
    if (!isBest(problem, result, bruteForceUnder(problem, config)))
      continue;
    ++fitting;
    for (const StagePlan &stage : result.plans[0].plan.stages)
      mixed += std::ranges::count(stage.recompute, stage.recompute.front()) != stage.layers;
  }
  EXPECT_GT(fitting, 150);
  EXPECT_GT(mixed, 20);
}

TEST(Search, FindsWhatBruteForceFindsWithExperts) {
  std::mt19937 random(13);
  int fitting = 0, split = 0;
  for (int trial = 0; trial < 20 * kTimes; ++trial) {
    SCOPED_TRACE(trial);
    Problem problem = withExperts(randomProblem(random), 6);
    problem.machine.link.bytesPerSecond /= 30; // gradients are expensive: those of experts need fewer ranks
    problem.machine.network.bytesPerSecond /= 30;
    SearchOptions options;
    options.all = true;
    options.relax = false;
    SearchResult result = search(problem, options);
    if (!isBest(problem, result, bruteForce(problem, options.all)))
      continue;
    ++fitting;
    split += result.plans[0].plan.ep > 1;
    EXPECT_EQ(result.plans[0].executable, problem.capability.runs(result.plans[0].plan));
  }
  EXPECT_GT(fitting, 10 * kTimes);
  EXPECT_GE(split, kTimes);
}

// Without experts ep is 1, whatever the devices.
TEST(Search, DenseModelsHaveNoExpertAxis) {
  Problem problem = shapeProblem(gpt(4, 256, 4), System{}, testMachine(1, 8), 8);
  SearchOptions options;
  options.all = true;
  for (const PricedPlan &priced : search(problem, options).plans)
    EXPECT_EQ(priced.plan.ep, 1);
  problem.pins.ep = 2;
  EXPECT_TRUE(search(problem, options).plans.empty());
}

TEST(Search, ResultDoesNotDependOnThreads) {
  for (bool alike : {true, false}) {
    Machine machine = testMachine(2, 8, 20e9);
    Problem problem = alike ? shapeProblem(gpt(24, 1024, 16), System{}, machine, 96)
                            : distinctLayers(12, 4096, 32, testMachine(2, 8, 8e9), 48);
    SearchOptions one, two;
    one.all = two.all = true;
    two.threads = 2;
    SearchResult a = search(problem, one), b = search(problem, two);
    ASSERT_FALSE(a.plans.empty());
    ASSERT_EQ(a.plans.size(), b.plans.size());
    EXPECT_EQ(a.statistics.evaluated, b.statistics.evaluated);
    EXPECT_EQ(a.statistics.lowerBoundSeconds, b.statistics.lowerBoundSeconds);
    for (size_t i = 0; i < a.plans.size(); ++i) {
      EXPECT_EQ(a.plans[i].prediction.stepSeconds, b.plans[i].prediction.stepSeconds);
      ASSERT_EQ(a.plans[i].plan.stages.size(), b.plans[i].plan.stages.size());
      for (size_t stage = 0; stage < a.plans[i].plan.stages.size(); ++stage)
        EXPECT_EQ(a.plans[i].plan.stages[stage].recompute, b.plans[i].plan.stages[stage].recompute);
    }
  }
}

TEST(Search, PlansOfDistinctLayersDoNotDependOnThreads) {
  Problem problem = distinctLayers(13, 2048, 16, testMachine(1, 8, 24e9), 64);
  problem.pins.schedule = Schedule::OneFOneB; // several chunks of unlike layers are not proved
  SearchOptions one, two;
  two.threads = 2;
  SearchResult a = search(problem, one), b = search(problem, two);
  ASSERT_FALSE(a.plans.empty());
  EXPECT_EQ(a.plans[0].prediction.stepSeconds, b.plans[0].prediction.stepSeconds);
  EXPECT_EQ(a.statistics.evaluated, b.statistics.evaluated);
  EXPECT_TRUE(a.statistics.optimal);
  EXPECT_NEAR(a.statistics.lowerBoundSeconds, a.plans[0].prediction.stepSeconds,
              1e-8 * a.plans[0].prediction.stepSeconds);
  EXPECT_TRUE(a.plans[0].prediction.fits());
}

// 36 kinds of layers.
TEST(Search, ManyKindsLoseNoPlan) {
  Problem problem = distinctLayers(36, 1024, 16, testMachine(2, 4, 3e9), 16);
  problem.pins.schedule = Schedule::OneFOneB; // several chunks of unlike layers are not proved
  SearchOptions options;
  options.alternatives = 0;
  SearchResult result = search(problem, options);
  ASSERT_FALSE(result.plans.empty());
  EXPECT_TRUE(result.statistics.optimal);
  double best = std::numeric_limits<double>::infinity(), plans = 0;
  for (int tp : {1, 2, 4, 8})
    for (int pp : {1, 2, 4, 8})
      for (int cp : {1, 2, 4, 8}) {
        problem.pins.tp = tp, problem.pins.pp = pp, problem.pins.cp = cp;
        SearchResult alone = tp * pp * cp <= 8 ? search(problem, options) : SearchResult();
        plans += alone.statistics.space;
        if (!alone.plans.empty())
          best = std::min(best, alone.plans[0].prediction.stepSeconds);
      }
  EXPECT_EQ(result.plans[0].prediction.stepSeconds, best);
  EXPECT_NEAR(result.statistics.space, plans, 1e-9 * plans);
}

// Only divisors are tried, and no loop runs over samples.
TEST(Search, ABillionSamplesAreDivided) {
  Problem problem = shapeProblem(gpt(4, 512, 8), System{}, testMachine(1, 8), 1'000'000'000);
  SearchOptions options;
  options.relax = false;
  EXPECT_NE(search(problem, options).binding, ""); // micro-batches of 1,907 samples at least
  problem.globalBatch = 1 << 20;
  SearchResult result = search(problem);
  ASSERT_FALSE(result.plans.empty());
  EXPECT_TRUE(result.statistics.optimal);
  EXPECT_EQ(result.plans[0].plan.globalBatch(), 1 << 20);
}

// Without pinned chunks at most 64 are tried, and the work of a search does not grow with the number of layers.
TEST(Search, ManyLayersHaveFewChunks) {
  Problem problem = shapeProblem(gpt(600, 64, 4, 256, 64), System{}, testMachine(1, 4), 8);
  problem.pins.schedule = Schedule::Interleaved;
  problem.pins.pp = 2;
  SearchResult result = search(problem);
  ASSERT_FALSE(result.plans.empty());
  EXPECT_LE(result.plans[0].plan.virtualStages, 64);
  problem.pins.virtualStages = 100;
  result = search(problem);
  ASSERT_FALSE(result.plans.empty());
  EXPECT_EQ(result.plans[0].plan.virtualStages, 100);
}

TEST(Search, HonoursPins) {
  Problem problem = shapeProblem(gpt(12, 768, 12), System{}, testMachine(1, 8), 32);
  problem.pins.tp = 2;
  problem.pins.cp = 1;
  problem.pins.microBatchSize = 4;
  problem.pins.stageLayers = std::vector<int>{7, 5};
  problem.pins.recompute = Recompute::Full;
  SearchResult result = search(problem);
  ASSERT_FALSE(result.plans.empty());
  const Plan &plan = result.plans[0].plan;
  EXPECT_EQ(plan.tp, 2);
  EXPECT_EQ(plan.pp, 2);
  EXPECT_EQ(plan.dp, 2);
  EXPECT_EQ(plan.microBatchSize, 4);
  ASSERT_EQ(plan.stages.size(), 2u);
  EXPECT_EQ(plan.stages[0].layers, 7);
  EXPECT_EQ(plan.stages[1].recompute, std::vector<Recompute>(5, Recompute::Full));
}

// Long causal sequences are in zigzag order, and short windows are not: each context rank has equal windows, and the
// order would cost a copy of keys and values.
TEST(Search, TheFasterOrderOfContextRanksIsChosen) {
  constexpr int cp = static_cast<int>(Axis::Cp);
  auto solve = [](double unseen, ContextOrders orders, std::optional<bool> pin = {}) {
    Problem problem = shapeProblem(gpt(8, 1024, 16, 51200, 32768), System{}, testMachine(1, 8), 8);
    for (SegmentKind &kind : problem.kinds)
      for (PatternTerms &terms : kind.patterns)
        for (ComputeTerm &term : terms.compute)
          if (term.kind == ComputeClass::Attention) {
            Monomial less = term.operations.front();
            less.coefficient *= -unseen;
            less.powers.push_back({cp, -1});
            term.operations.push_back(less);
          }
    problem.pins.cp = 8;
    problem.pins.zigzag = pin;
    problem.software.contextOrders = orders;
    SearchResult result = search(problem);
    EXPECT_EQ(result.plans.empty(), false);
    return result.plans.front();
  };
  PricedPlan causal = solve(0.5, ContextOrders::Both), window = solve(1e-6, ContextOrders::Both);
  EXPECT_TRUE(causal.plan.zigzag);
  EXPECT_FALSE(window.plan.zigzag);
  EXPECT_EQ(causal.prediction.stepSeconds, solve(0.5, ContextOrders::Both, true).prediction.stepSeconds);
  EXPECT_EQ(window.prediction.stepSeconds, solve(1e-6, ContextOrders::Both, false).prediction.stepSeconds);
  EXPECT_LT(causal.prediction.stepSeconds, solve(0.5, ContextOrders::Both, false).prediction.stepSeconds);
  EXPECT_LT(window.prediction.stepSeconds, solve(1e-6, ContextOrders::Both, true).prediction.stepSeconds);
  EXPECT_FALSE(solve(0.5, ContextOrders::Contiguous).plan.zigzag);
  EXPECT_TRUE(solve(0.5, ContextOrders::Zigzag).plan.zigzag);
}

// Software that can place experts over tp or cp does so where the step is shorter. A pin decides for any software.
TEST(Search, ExpertsLieWhereTheStepIsShorter) {
  auto solve = [](bool overContext, double factor, bool hasPlace, std::optional<bool> pin = {}) {
    auto field = overContext ? &Pattern::expertsOverContext : &Pattern::splitsExperts;
    Problem problem = withExperts(shapeProblem(gpt(8, 1024, 16, 51200, 4096), System{}, testMachine(1, 8), 8), 8);
    problem.limits.back().ofExperts = true;
    for (SegmentKind &kind : problem.kinds)
      for (size_t i = 0, usual = kind.patterns.size(); i < usual; ++i) {
        kind.patterns[i].pattern.*field = !overContext;
        PatternTerms other = kind.patterns[i];
        other.pattern.*field = overContext;
        for (ComputeTerm &term : other.compute)
          for (Monomial &part : term.bytes)
            part.coefficient *= factor;
        for (CollectiveTerm &term : other.collectives)
          for (Monomial &part : term.bytes)
            part.coefficient *= factor;
        kind.patterns.push_back(other);
      }
    (overContext ? problem.pins.cp : problem.pins.tp) = 4;
    (overContext ? problem.pins.expertsOverContext : problem.pins.splitsExperts) = pin;
    (overContext ? problem.software.hasExpertsOverContext : problem.software.hasWholeExperts) = hasPlace;
    SearchResult result = search(problem);
    EXPECT_FALSE(result.plans.empty());
    return overContext ? result.plans.at(0).plan.expertsOverContext : !result.plans.at(0).plan.splitsExperts;
  };
  for (bool overContext : {false, true}) {
    EXPECT_TRUE(solve(overContext, 0.5, /*hasPlace=*/true));
    EXPECT_FALSE(solve(overContext, 2, /*hasPlace=*/true));
    EXPECT_FALSE(solve(overContext, 0.5, /*hasPlace=*/false));
    EXPECT_EQ(solve(overContext, 0.5, /*hasPlace=*/true, overContext ? false : true), false);
    EXPECT_EQ(solve(overContext, 2, /*hasPlace=*/false, overContext ? true : false), true);
  }
}

// Ranks that share cores take turns: their work is done one after the other, but a rank that waits takes no core.
TEST(Search, RanksShareCores) {
  Problem problem = shapeProblem(gpt(8, 1024, 16, 1024), System{}, testMachine(1, 4), 8);
  auto price = [&](int dp, int pp, int cores, int64_t microBatches) {
    problem.machine.coresPerHost = cores;
    Plan plan;
    plan.dp = dp, plan.pp = pp, plan.microBatches = microBatches, plan.microBatchSize = 8 / microBatches / dp;
    return pricePlan(problem, plan).prediction;
  };
  EXPECT_DOUBLE_EQ(price(4, 1, 2, 2).stepSeconds, 2 * price(4, 1, 0, 2).stepSeconds);
  EXPECT_EQ(price(4, 1, 4, 2).stepSeconds, price(4, 1, 0, 2).stepSeconds);
  EXPECT_EQ(price(1, 4, 2, 1).stepSeconds, price(1, 4, 0, 1).stepSeconds); // one stage works at a time
  Prediction shared = price(1, 4, 2, 8), own = price(1, 4, 0, 8);
  EXPECT_NEAR(shared.stepSeconds, 2 * (own.stepSeconds - own.time.bubble), 1e-9);
  problem.machine.coresPerHost = 0;
  SearchResult result = search(problem);
  problem.machine.coresPerHost = 2;
  ASSERT_FALSE(result.plans.empty());
  for (const PricedPlan &one : search(problem).plans) {
    EXPECT_EQ(one.prediction.stepSeconds, pricePlan(problem, one.plan).prediction.stepSeconds);
    EXPECT_GE(one.prediction.stepSeconds, result.plans.front().prediction.stepSeconds);
  }
}

// Recomputes any number of layers on each stage.
void keepByRule(const Problem &problem, std::mt19937 &random, const std::vector<int> &totals, Plan &plan) {
  StageOptions options(problem, plan);
  for (int stage = 0; stage < plan.pp; ++stage) {
    std::vector<StagePlan *> chunks = chunksOfStage(plan, stage);
    RecomputedLayers recomputed{static_cast<int>(random() % (totals[stage] + 1)), 0};
    recomputed.selective = static_cast<int>(random() % (totals[stage] - recomputed.full + 1));
    auto kept = recomputeOfLayers(options.table(), rangesOf(chunks), {recomputed});
    for (size_t i = 0; i < chunks.size(); ++i)
      chunks[i]->recompute = kept[i];
  }
}

// No split with any recompute under any schedule needs less memory or ends earlier than the bound without a split.
TEST(Search, NoPlanIsFasterThanItsRelaxedBound) {
  std::mt19937 random(31);
  int compared = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    Plan plan;
    plan.pp = 1 + static_cast<int>(random() % 4);
    plan.schedule = kSchedules[random() % std::size(kSchedules)];
    plan.virtualStages = isVShaped(plan.schedule) ? 2 : plan.schedule == Schedule::Interleaved ? 2 + random() % 2 : 1;
    int perStage = chunksOf(plan.schedule, plan.virtualStages), chunks = plan.pp * perStage;
    plan.microBatches = plan.pp * (1 + static_cast<int>(random() % 5)) + (perStage > 1 ? 0 : random() % 3);
    bool byRule = perStage == 1 || trial % 2 == 0;
    std::vector<int> totals(plan.pp), counts(chunks);
    for (int &total : totals)
      total = perStage + static_cast<int>(random() % (2 * perStage));
    if (perStage > 1 && byRule)
      counts = spreadOverChunks(plan, totals);
    else
      for (int &count : counts)
        count = (perStage == 1) + static_cast<int>(random() % 4);
    int layers = std::accumulate(counts.begin(), counts.end(), 0);
    if (layers == 0 || (plan.pp == 1 && plan.schedule != Schedule::OneFOneB))
      continue;
    Machine machine = testMachine(1, plan.pp, std::array{80e9, 3e9, 1e9}[random() % 3]);
    machine.link.bytesPerSecond /= 1 + random() % 30; // sends weigh little or much
    Problem problem =
        shapeProblem(gpt(layers, 512, 8, 1000 * (1 + random() % 64)), System{}, machine, plan.microBatches);
    for (int chunk = 0, first = 0; chunk < chunks; first += counts[chunk++]) {
      StagePlan stage{first, counts[chunk], {}};
      for (int layer = 0; layer < stage.layers; ++layer)
        stage.recompute.push_back(static_cast<Recompute>(random() % 3));
      plan.stages.push_back(std::move(stage));
    }
    if (perStage > 1 && byRule)
      keepByRule(problem, random, totals, plan);
    Prediction prediction = pricePlan(problem, plan).prediction;
    if (!prediction.fits())
      continue;
    ++compared;
    WorkSum sum = sumWork(problem, buildCostTable(problem, plan));
    EXPECT_LE(relaxedBound(sum, machine, plan, byRule), prediction.stepSeconds * (1 + 1e-9))
        << scheduleName(plan.schedule) << " pp " << plan.pp << " micro-batches " << plan.microBatches << " trial "
        << trial;
  }
  EXPECT_GT(compared, 1000);
}

TEST(Search, BreakdownSumsToTheStep) {
  SearchOptions options;
  options.all = true;
  SearchResult result = search(shapeProblem(gpt(16, 2048, 16), System{}, testMachine(2, 8, 16e9), 64), options);
  ASSERT_GE(result.plans.size(), 3u);
  for (const PricedPlan &priced : result.plans) {
    EXPECT_NEAR(priced.prediction.time.total(), priced.prediction.stepSeconds, 1e-9 * priced.prediction.stepSeconds);
    EXPECT_TRUE(priced.prediction.fits());
    EXPECT_TRUE(violations(shapeProblem(gpt(16, 2048, 16), System{}, testMachine(2, 8), 64), priced.plan).empty());
  }
}

// Without ends, sends and steps the bubble of 1F1B is (p - 1) / (m + p - 1) of all time. A stage without work is idle.
TEST(Search, BubbleIsTheIdleShareOfAllDevices) {
  Problem problem = shapeProblem(gpt(8, 1024, 8), System{}, testMachine(1, 4), 8);
  problem.embed = problem.head = -1;
  problem.tiedEmbedding = false;
  problem.boundaryBytes.clear();
  problem.machine.launchSeconds = problem.machine.link.latencySeconds = 0;
  for (PatternTerms &terms : problem.kinds[1].patterns)
    std::erase_if(terms.compute, [](const ComputeTerm &term) { return term.phase == Phase::Step; });
  Plan plan;
  plan.pp = 4, plan.microBatches = 8, plan.zero = 0;
  Prediction even = pricePlan(problem, plan).prediction;
  EXPECT_NEAR(even.bubbleShare, 3.0 / 11, 1e-9);
  EXPECT_NEAR(even.time.total(), even.stepSeconds, 1e-9 * even.stepSeconds);
  // Layers 5, 1, 1, 1: the first stage never waits, because the others finish a micro-batch before it completes four.
  for (int first = 0; int layers : {5, 1, 1, 1}) {
    plan.stages.push_back({first, layers, std::vector<Recompute>(layers)});
    first += layers;
  }
  EXPECT_NEAR(pricePlan(problem, plan).prediction.bubbleShare, 1 - 8.0 / (4 * 5), 1e-9);
}

TEST(Search, AllFaultsAreReportedTogether) {
  Problem problem = shapeProblem(gpt(4, 256, 4), System{}, testMachine(2, 4), 0);
  problem.machine.network = {};
  problem.pins.tp = 3;
  problem.pins.stageLayers = std::vector<int>{2, 1};
  SearchResult result = search(problem);
  for (const char *fault :
       {"network bandwidth", "global batch must be at least 1", "tp 3 · pp 1 · cp 1 needs a multiple of 3",
        "heads 4 is not a multiple of tp 3", "stages have 3 layers together, the model has 4"})
    EXPECT_TRUE(std::ranges::any_of(result.errors,
                                    [&](const std::string &error) { return error.find(fault) != std::string::npos; }))
        << fault << "\n"
        << testing::PrintToString(result.errors);
  EXPECT_TRUE(result.plans.empty());
}

// The batches of a ramp consist of the micro-batches of the last one.
TEST(Search, PlansDivideTheSmallerBatchesOfARamp) {
  Problem problem = shapeProblem(gpt(4, 128, 2, 1000, 128), System{}, testMachine(1, 8), 96);
  SearchOptions options;
  options.alternatives = 100;
  auto fitsRamp = [](const PricedPlan &priced) {
    const Plan &plan = priced.plan;
    int64_t unit = plan.globalBatch() / plan.microBatches;
    return 12 % unit == 0 &&
           whyNotSchedulable(plan.schedule, plan.pp, static_cast<int>(12 / unit), plan.virtualStages).empty();
  };
  SearchResult free = search(problem, options);
  EXPECT_FALSE(std::ranges::all_of(free.plans, fitsRamp));
  problem.smallerBatches = {12};
  SearchResult ramp = search(problem, options);
  EXPECT_FALSE(ramp.plans.empty());
  EXPECT_TRUE(std::ranges::all_of(ramp.plans, fitsRamp));
  problem.smallerBatches = {12, 7};
  problem.pins.dp = 2;
  EXPECT_THAT(search(problem, options).binding, testing::HasSubstr("the smaller batches of its ramp"));
}
