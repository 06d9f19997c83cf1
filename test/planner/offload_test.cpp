// Optimizer state, parameters and kept values in host memory: times and bytes calculated by hand, and properties of
// every plan.
#include "planner/answer/explain.h"
#include "planner/answer/why_not.h"
#include "planner/model/memory.h"
#include "planner/search.h"
#include "planner/search/bounds.h"
#include "planner/search/split.h"
#include "test/planner/brute_force.h"
#include "test/planner/shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

using namespace espalier::planner;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

namespace {

// One layer: 3 ms forward, 5 + 1 ms backward, 2 ms step. It keeps 40, 20 or 4 MB and recomputes 0, 1 or 3 ms. Its rank
// holds 30 MB of parameters, 45 of gradients and 60 of optimizer state.
SegmentCost layer() {
  SegmentCost cost;
  cost.forward.compute = 2e-3;
  cost.forward.communication[static_cast<int>(Axis::Tp)] = 1e-3;
  cost.backward.compute = 5e-3;
  cost.weight.compute = 1e-3;
  cost.step.compute = 2e-3;
  cost.parameterBytes = 30e6, cost.gradientBytes = 45e6, cost.optimizerBytes = 60e6;
  cost.savedBytes = {40e6, 20e6, 4e6};
  cost.recompute[1].compute = 1e-3;
  cost.recompute[2].compute = 3e-3;
  return cost;
}

Plan offloading(bool optimizer, bool activations, bool parameters = false) {
  Plan plan;
  plan.offloadOptimizer = optimizer;
  plan.offloadActivations = activations;
  plan.offloadParameters = parameters;
  plan.zero = parameters ? 3 : 0;
  return plan;
}

// Returns the layer under a plan, with a link of 5 GB/s.
SegmentCost offloaded(const Plan &plan, bool isLayer = true) {
  SegmentCost cost = layer();
  addOffload(cost, withHost(testMachine(1, 8), 1e12, 10e9, 2), plan, isLayer);
  return cost;
}

// Returns a table of two equal layers without embedding and head.
CostTable twoLayers(const Plan &plan) {
  CostTable table;
  table.kinds = {offloaded(plan)};
  table.layerKinds = {0, 0};
  return table;
}

} // namespace

TEST(Offload, DevicesOfOneLinkShareIt) {
  EXPECT_EQ(withHost(testMachine(1, 8), 1e12, 10e9, 2).hostBytesPerSecond(), 5e9);
  EXPECT_EQ(withHost(testMachine(4, 1), 1e12, 10e9, 2).hostBytesPerSecond(), 10e9); // the link has no other device
  EXPECT_EQ(withHost(testMachine(1, 8), 1e12).hostShareBytes(), 125e9);
  EXPECT_FALSE(testMachine(1, 8).canOffload());
}

// 60 MB at 5 GB/s take 12 ms beside a step of 2 ms: 12 + 0.2, which is 10.2 more than without.
TEST(Offload, OptimizerStatePassesThroughTheDeviceOncePerStep) {
  SegmentCost cost = offloaded(offloading(true, false));
  EXPECT_NEAR(cost.step.hostTransfer, 10.2e-3, 1e-12);
  EXPECT_NEAR(cost.step.total(), 12.2e-3, 1e-12);
  EXPECT_EQ(cost.optimizerBufferBytes, 120e6);
  EXPECT_EQ(cost.forwardTransfer[0], 0);
}

// 40, 20 and 4 MB at 5 GB/s take 8, 4 and 0.8 ms, beside 3 ms of forward and 6, 7 and 9 ms of backward.
TEST(Offload, KeptValuesMoveBesideForwardAndBackward) {
  SegmentCost cost = offloaded(offloading(false, true));
  EXPECT_NEAR(cost.forwardTransfer[0], 8e-3 + 0.3e-3 - 3e-3, 1e-12);
  EXPECT_NEAR(cost.forwardTransfer[1], 4e-3 + 0.3e-3 - 3e-3, 1e-12);
  EXPECT_NEAR(cost.forwardTransfer[2], 0.08e-3, 1e-12);
  EXPECT_NEAR(cost.recompute[0].hostTransfer, 8e-3 + 0.6e-3 - 6e-3, 1e-12);
  EXPECT_NEAR(cost.recompute[1].hostTransfer, 0.4e-3, 1e-12);
  EXPECT_NEAR(cost.recompute[2].hostTransfer, 0.08e-3, 1e-12);
  EXPECT_EQ(cost.savedBufferBytes[1], 80e6);
  EXPECT_EQ(cost.step.hostTransfer, 0);
}

// Separate weight gradients take 1 ms, and backward without them 5 ms. Values return for both.
TEST(Offload, KeptValuesReturnAgainForSeparateWeightGradients) {
  Plan plan = offloading(false, true);
  plan.schedule = Schedule::ZeroBubbleH1;
  SegmentCost cost = offloaded(plan);
  EXPECT_NEAR(cost.forwardTransfer[0], 8e-3 + 0.3e-3 - 3e-3, 1e-12);
  EXPECT_NEAR(cost.recompute[0].hostTransfer, 8e-3 + 0.5e-3 - 5e-3, 1e-12);
  EXPECT_NEAR(cost.recompute[1].hostTransfer, 0.4e-3, 1e-12);
  EXPECT_NEAR(cost.weightTransfer[0], 8e-3 + 0.1e-3 - 1e-3, 1e-12);
  EXPECT_NEAR(cost.weightTransfer[2], 0.08e-3, 1e-12);
}

// Parameters arrive in 6 ms and gradients leave in 9 ms, concurrently. 105 MB are transferred once per step in 21 ms.
TEST(Offload, ParametersComeBeforeTheirGathersAndGradientsLeave) {
  SegmentCost cost = offloaded(offloading(true, false, true));
  for (double transfer : cost.forwardTransfer)
    EXPECT_NEAR(transfer, 6e-3 + 0.3e-3 - 3e-3, 1e-12);
  EXPECT_NEAR(cost.recompute[0].hostTransfer, 9e-3 + 0.6e-3 - 6e-3, 1e-12);
  EXPECT_NEAR(cost.recompute[2].hostTransfer, 9e-3 + 0.9e-3 - 9e-3, 1e-12);
  EXPECT_NEAR(cost.step.hostTransfer, 21e-3 + 0.2e-3 - 2e-3, 1e-12);
  EXPECT_EQ(cost.parameterBufferBytes, 150e6);
  EXPECT_EQ(cost.savedBufferBytes[0], 0);
  EXPECT_EQ(offloaded(offloading(true, false, true), /*isLayer=*/false).forwardTransfer[0], cost.forwardTransfer[0]);
}

// Kept values leave while parameters arrive, and return with them.
TEST(Offload, ParametersShareTheLinkWithKeptValues) {
  SegmentCost cost = offloaded(offloading(true, true, true));
  EXPECT_NEAR(cost.forwardTransfer[0], 8e-3 + 0.3e-3 - 3e-3, 1e-12);
  EXPECT_NEAR(cost.forwardTransfer[1], 6e-3 + 0.3e-3 - 3e-3, 1e-12);
  EXPECT_NEAR(cost.recompute[0].hostTransfer, 14e-3 + 0.6e-3 - 6e-3, 1e-12);
  EXPECT_NEAR(cost.recompute[2].hostTransfer, 9e-3 + 0.9e-3 - 9e-3, 1e-12);
}

// Separate weight gradients: gradients leave beside them, and backward fetches only parameters.
TEST(Offload, GradientsLeaveBesideSeparateWeightGradients) {
  Plan plan = offloading(true, false, true);
  plan.schedule = Schedule::ZeroBubbleH1;
  SegmentCost cost = offloaded(plan);
  EXPECT_NEAR(cost.recompute[0].hostTransfer, 6e-3 + 0.5e-3 - 5e-3, 1e-12);
  EXPECT_NEAR(cost.weightTransfer[0], 9e-3 + 0.1e-3 - 1e-3, 1e-12);
}

// Two layers and six micro-batches in flight: 480 MB kept, 120 MB of optimizer state.
TEST(Offload, BytesMoveToTheHostThroughBuffers) {
  Problem problem;
  problem.machine = testMachine(1, 8);
  StageContent content;
  content.savedInFlight.layers = 480e6;
  content.layers = {{2, 0, 0}};
  StageMemory plain = stageMemory(problem, twoLayers(offloading(false, false)), content);
  EXPECT_NEAR(plain.activations, 480e6, 1);
  EXPECT_NEAR(plain.optimizer, 120e6, 1);
  EXPECT_EQ(plain.host(), 0);
  StageMemory moved = stageMemory(problem, twoLayers(offloading(true, true)), content);
  EXPECT_EQ(moved.activations, 0);
  EXPECT_EQ(moved.optimizer, 0);
  EXPECT_NEAR(moved.hostActivations, 480e6, 1);
  EXPECT_NEAR(moved.hostOptimizer, 120e6, 1);
  EXPECT_NEAR(moved.communication, 4 * 40e6 + 120e6, 1); // the buffers hold the state of both layers
  EXPECT_NEAR(moved.parameters + moved.gradients, 150e6, 1);
  content.layers = {{5, 0, 0}};
  moved = stageMemory(problem, twoLayers(offloading(true, false, true)), content);
  EXPECT_EQ(moved.parameters + moved.gradients, 0);
  EXPECT_NEAR(moved.hostParameters, 150e6, 1);
  EXPECT_NEAR(moved.hostGradients, 225e6, 1);
  EXPECT_NEAR(moved.communication, 150e6 + 120e6, 1);
}

// Every class that is not offloaded is unchanged. Moved bytes equal the original bytes.
TEST(Offload, NeverNeedsMoreDeviceMemoryNorLessTime) {
  std::mt19937 random(5);
  auto pick = [&](std::initializer_list<int> list) { return list.begin()[random() % list.size()]; };
  for (int trial = 0; trial < 300; ++trial) {
    double speed = std::exp(std::uniform_real_distribution<double>(std::log(1e8), std::log(1e12))(random));
    Problem problem = shapeProblem(gpt(8, 64 * pick({4, 16}), 4), System{},
                                   withHost(testMachine(1, 8), 1e12, speed, pick({1, 2, 8})), 32);
    Plan plan;
    plan.pp = pick({1, 2, 4}), plan.tp = pick({1, 2}), plan.dp = 8 / plan.pp / plan.tp;
    plan.zero = pick({0, 1, 2, 3});
    plan.microBatches = 32 / plan.dp;
    plan.schedule = kSchedules[random() % std::size(kSchedules)];
    if (plan.pp == 1)
      plan.schedule = Schedule::OneFOneB;
    plan.virtualStages = chunksOf(plan.schedule, 2);
    problem.pins.recompute = static_cast<Recompute>(pick({0, 1, 2}));
    ASSERT_THAT(violations(problem, plan), ElementsAre());
    PricedPlan plain = pricePlan(problem, plan);
    for (int flags = 1; flags < 8; ++flags) {
      plan.offloadOptimizer = flags & 1;
      plan.offloadActivations = flags & 2;
      plan.offloadParameters = false;
      PricedPlan less = pricePlan(problem, plan); // without the last kind of offloading
      plan.offloadParameters = flags & 4;
      if (plan.offloadParameters && (plan.zero < 3 || !plan.offloadOptimizer))
        continue;
      PricedPlan moved = pricePlan(problem, plan);
      EXPECT_FALSE(moved.executable);
      EXPECT_GT(moved.prediction.stepSeconds, plain.prediction.stepSeconds) << trial;
      EXPECT_GE(moved.prediction.stepSeconds, less.prediction.stepSeconds) << trial;
      EXPECT_LE(moved.prediction.peakBytes, less.prediction.peakBytes * (1 + 1e-12)) << trial;
      EXPECT_NEAR(moved.prediction.time.total(), moved.prediction.stepSeconds, 1e-9 * moved.prediction.stepSeconds);
      for (int stage = 0; stage < plan.pp; ++stage) {
        const StageMemory &before = plain.prediction.memory[stage], &after = moved.prediction.memory[stage];
        EXPECT_LE(after.total(), before.total() * (1 + 1e-12)) << trial;
        EXPECT_EQ(after.parameters + after.hostParameters, before.parameters);
        EXPECT_EQ(after.gradients + after.hostGradients, before.gradients);
        EXPECT_EQ(after.hostParameters > 0, plan.offloadParameters);
        EXPECT_NEAR(after.hostOptimizer + after.optimizer, before.optimizer, 1e-9 * before.optimizer);
        EXPECT_NEAR(after.hostActivations + after.activations, before.activations, 1e-9 * before.activations);
        EXPECT_EQ(after.hostOptimizer > 0, plan.offloadOptimizer);
        EXPECT_EQ(after.hostActivations > 0, plan.offloadActivations);
      }
    }
    plan.offloadOptimizer = plan.offloadActivations = plan.offloadParameters = false;
  }
}

TEST(Offload, ImpossibleOffloadingIsReported) {
  Problem problem = shapeProblem(gpt(2, 256, 4), System{}, testMachine(1, 2), 4);
  Plan plan;
  plan.pp = 2;
  plan.microBatches = 4;
  plan.offloadActivations = true;
  EXPECT_THAT(violations(problem, plan), ElementsAre(HasSubstr("has no link to host memory")));
  problem.pins.offloadOptimizer = true;
  EXPECT_THAT(checkProblem(problem), ElementsAre(HasSubstr("cluster test has no link to host memory")));
  problem.machine = withHost(problem.machine, 0);
  EXPECT_THAT(checkProblem(problem), ElementsAre(HasSubstr("host memory (there is a link to it) must be positive")));
  problem.machine = withHost(problem.machine);
  plan.offloadParameters = true;
  EXPECT_THAT(violations(problem, plan),
              ElementsAre(HasSubstr("under ZeRO 3 only"), HasSubstr("with the optimizer only")));
  problem.pins.offloadParameters = true;
  EXPECT_THAT(checkProblem(problem), ElementsAre());
  problem.pins.zero = 2;
  EXPECT_THAT(checkProblem(problem), ElementsAre(HasSubstr("under ZeRO 3 only, the ZeRO stage is 2")));
}

// 1.3B parameters on one device: their 12 bytes of state each take 16 of its 24 GB.
class OnlyOffloaded : public testing::Test {
protected:
  OnlyOffloaded() { options.all = true; }
  Problem problem = shapeProblem(gpt(24, 2048, 16), System{}, withHost(testMachine(1, 1, 18e9)), 8);
  SearchOptions options;
};

TEST_F(OnlyOffloaded, FitsOnlyOffloadedAndIsProved) {
  SearchResult result = search(problem, options);
  ASSERT_EQ(result.plans.size(), 1u);
  EXPECT_TRUE(result.plans[0].plan.offloadOptimizer);
  EXPECT_FALSE(result.plans[0].executable);
  EXPECT_TRUE(result.statistics.optimal);
  EXPECT_THAT(explainPlans(result), HasSubstr("optimizer offloaded"));
  EXPECT_THAT(explainPlans(result), HasSubstr("total on host (GB per rank)"));
  EXPECT_THAT(explainPlans(result), HasSubstr("host memory "));
  problem.pins.offloadOptimizer = false;
  EXPECT_TRUE(search(problem, options).plans.empty());
}

TEST_F(OnlyOffloaded, IsOneOfTheSmallestRelaxations) {
  options.all = false;
  SearchResult result = search(problem, options);
  ASSERT_TRUE(result.plans.empty());
  std::vector<std::string> changes;
  for (const Relaxation &relaxation : result.relaxations)
    changes.push_back(relaxation.change);
  EXPECT_THAT(changes, Contains("offload_optimizer=true (--all)"));
  EXPECT_THAT(changes, Not(Contains("offload_activations=true (--all)")));
  problem.machine.host = {};
  for (const Relaxation &relaxation : search(problem, options).relaxations)
    EXPECT_THAT(relaxation.change, Not(HasSubstr("offload")));
}

// Parameters and gradients take 8 GB and leave no space for anything else. Offloaded, only a few layers of them remain.
TEST_F(OnlyOffloaded, ParametersAreTheLastResort) {
  problem.machine.memoryBytes = 7e9;
  SearchResult result = search(problem, options);
  ASSERT_EQ(result.plans.size(), 1u);
  EXPECT_TRUE(result.plans[0].plan.offloadParameters);
  EXPECT_EQ(problem.capability.whyNot(result.plans[0].plan), std::string("offloading"));
  EXPECT_TRUE(result.statistics.optimal);
  EXPECT_THAT(explainPlans(result), HasSubstr("parameters offloaded"));
  options.all = false;
  result = search(problem, options);
  ASSERT_TRUE(result.plans.empty());
  std::vector<std::string> changes;
  for (const Relaxation &relaxation : result.relaxations)
    changes.push_back(relaxation.change);
  EXPECT_THAT(changes, Contains("zero=3, offload_optimizer=true, offload_parameters=true (--all)"));
  problem.pins.zero = 1;
  for (const Relaxation &relaxation : search(problem, options).relaxations)
    EXPECT_THAT(relaxation.change, Not(HasSubstr("offload_parameters")));
}

TEST_F(OnlyOffloaded, HostMemoryIsASeparateLimit) {
  problem.machine.host.bytes = 10e9;
  SearchResult result = search(problem, options);
  ASSERT_TRUE(result.plans.empty());
  problem.pins.offloadOptimizer = true;
  result = search(problem, options);
  ASSERT_TRUE(result.plans.empty());
  EXPECT_THAT(result.binding, HasSubstr("host memory: the plan that needs least takes "));
  EXPECT_THAT(result.binding, HasSubstr("have 9.31 GB, the share of one of 1 devices in 9.31 GB"));
}

TEST(Offload, ADifferenceByCauseSumsToTheTotal) {
  Problem problem = shapeProblem(gpt(24, 2048, 16), System{}, withHost(testMachine(1, 8)), 64);
  SearchOptions options;
  options.all = true;
  SearchResult chosen = search(problem, options);
  ASSERT_FALSE(chosen.plans.empty());
  EXPECT_FALSE(chosen.plans[0].plan.offloadOptimizer); // it fits without, and is faster
  Pins wish;
  wish.offloadOptimizer = wish.offloadActivations = true;
  WhyNot answer = whyNot(problem, chosen, wish, options);
  ASSERT_THAT(answer.violated, ElementsAre());
  EXPECT_TRUE(answer.best.plan.offloadOptimizer && answer.best.plan.offloadActivations);
  double sum = 0, transfer = 0;
  for (const auto &[name, seconds] : answer.items) {
    sum += seconds;
    transfer += name == "host transfer" ? seconds : 0;
  }
  EXPECT_GT(answer.moreSeconds, 0);
  EXPECT_GT(transfer, 0);
  EXPECT_NEAR(sum, answer.moreSeconds, 1e-9 * answer.best.prediction.stepSeconds);
}

// Each class moves different bytes. Each has its own bounds, which must hold for the priced plan.
TEST(Offload, BoundsAreThoseOfTheSavedClass) {
  for (auto [speed, parameters] : {std::pair(1e9, false), {20e9, true}, {20e9, false}, {500e9, false}, {500e9, true}})
    for (Schedule schedule : kSchedules)
      for (Recompute recompute : {Recompute::None, Recompute::Selective, Recompute::Full}) {
        Problem problem = shapeProblem(gpt(8, 2048, 16), System{}, withHost(testMachine(1, 2), 2e12, speed), 8);
        Plan plan = offloading(true, /*activations=*/speed < 500e9 || !parameters, parameters);
        plan.pp = 2, plan.microBatches = 8, plan.schedule = schedule;
        plan.virtualStages = chunksOf(schedule, 2);
        problem.pins.recompute = recompute;
        int layers = 4 / plan.virtualStages;
        Plan priced = plan;
        for (int first = 0; first < 8; first += layers)
          priced.stages.push_back({first, layers, std::vector<Recompute>(layers, recompute)});
        problem.pins.stageLayers = std::vector<int>(8 / layers, layers);
        double seconds = pricePlan(problem, priced).prediction.stepSeconds;
        StageOptions options(problem, plan);
        WorkSum work = sumWork(problem, options.table());
        EXPECT_LE(relaxedBound(work, problem.machine, plan, /*chunksAlike=*/true), seconds * (1 + 1e-12));
        SplitResult split = bestSplit(problem, options, seconds * (1 + 1e-6));
        EXPECT_NEAR(split.seconds, seconds, 1e-12 * seconds) << speed << " " << scheduleName(schedule);
        EXPECT_NEAR(split.lowerBound, seconds, 1e-8 * seconds);
      }
}

namespace {

// Uses random axes and schedules, scarce or ample host and device memory, and transfers that are slower or faster than
// compute. With `unlike`, stages are pinned and have layers of several kinds.
void compareWithBruteForce(unsigned seed, int trials, bool unlike) {
  std::mt19937 random(seed);
  int fitting = 0, mixed = 0, split = 0;
  for (int trial = 0; trial < trials; ++trial) {
    Plan config = offloading(/*optimizer=*/trial % 2, /*activations=*/unlike ? trial % 8 > 1 : trial % 8 != 5,
                             /*parameters=*/trial % 4 == 1);
    config.pp = 1 + static_cast<int>(random() % (unlike ? 2 : 3));
    config.schedule = config.pp > 1 ? kSchedules[random() % std::size(kSchedules)] : Schedule::OneFOneB;
    config.virtualStages = chunksOf(config.schedule, 2);
    config.microBatches = config.pp * (1 + static_cast<int>(random() % 3));
    int layers = config.pp * config.virtualStages + static_cast<int>(random() % 3);
    Machine machine = withHost(testMachine(1, config.pp), 2e12, between(random, 3e10, 3e12));
    Problem problem =
        unlike ? mixedLayers(random, layers, machine, config.microBatches)
               : shapeProblem(gpt(layers, 512, 8, 1000 * (1 + random() % 64)), System{}, machine, config.microBatches);
    pinPipeline(problem, config);
    problem.pins.zero = config.zero;
    problem.pins.offloadParameters = config.offloadParameters;
    problem.pins.offloadOptimizer = config.offloadOptimizer;
    problem.pins.offloadActivations = config.offloadActivations;
    if (unlike) {
      problem.pins.stageLayers = std::vector<int>(config.pp * config.virtualStages, 1);
      for (int left = layers - config.pp * config.virtualStages; left > 0; --left)
        ++(*problem.pins.stageLayers)[random() % problem.pins.stageLayers->size()];
    }
    SearchOptions options;
    options.all = true;
    options.relax = false;
    problem.machine.memoryBytes =
        leastBytes(problem, options) * between(random, 0.98, config.offloadActivations ? 4 : 2);
    if (SearchResult roomy = search(problem, options); trial % 4 && !roomy.plans.empty()) {
      double most = 0; // in a host's memory
      for (const StageMemory &memory : roomy.plans[0].prediction.memory)
        most = std::max(most, (trial % 16 == 5 ? 0.9 : 1) *
                                      (memory.hostOptimizer + memory.hostParameters + memory.hostGradients) +
                                  memory.hostActivations * between(random, 0.2, 1));
      problem.machine.host.bytes = std::max(most, 1.0) * config.pp;
    }
    SearchResult result = search(problem, options);
    double best = bruteForceUnder(problem, config);
    ASSERT_EQ(result.plans.empty(), best == std::numeric_limits<double>::infinity()) << trial;
    if (result.plans.empty())
      continue;
    ++fitting;
    bool isMixed = false;
    for (const StagePlan &stage : result.plans[0].plan.stages)
      isMixed = isMixed || (stage.layers > 0 && std::ranges::count(stage.recompute, stage.recompute[0]) < stage.layers);
    mixed += isMixed;
    split += isMixed && splitsBackward(config.schedule);
    EXPECT_NEAR(result.plans[0].prediction.stepSeconds, best, best * 1e-8) << trial;
    EXPECT_TRUE(result.plans[0].prediction.fits()) << trial;
    EXPECT_TRUE(result.statistics.optimal) << trial;
  }
  EXPECT_GT(fitting, trials / 2);
  EXPECT_GT(mixed, trials / 8);
  EXPECT_GT(split, trials / 30);
}

} // namespace

// Uses every class for each layer, and every split.
TEST(Offload, MixturesEqualBruteForce) { compareWithBruteForce(41, 250, /*unlike=*/false); }

// Uses every class for each layer with one chunk per stage; with several chunks, any number of layers of each kind.
TEST(Offload, MixturesOfUnlikeLayersEqualBruteForce) { compareWithBruteForce(43, 250, /*unlike=*/true); }

// Layers of different kinds use sums over ranges. The plan must equal the one priced alone.
TEST(Offload, OfDistinctLayersIsThePricedPlan) {
  Problem problem = distinctLayers(7, 2048, 16, withHost(testMachine(1, 4, 4e9)), 16);
  problem.pins.offloadOptimizer = problem.pins.offloadActivations = true;
  problem.pins.pp = 2;
  SearchOptions options;
  options.all = true;
  SearchResult result = search(problem, options);
  ASSERT_FALSE(result.plans.empty());
  EXPECT_TRUE(result.plans[0].prediction.fits());
  EXPECT_NEAR(pricePlan(problem, result.plans[0].plan).prediction.stepSeconds, result.plans[0].prediction.stepSeconds,
              1e-8 * result.plans[0].prediction.stepSeconds);
  EXPECT_LE(result.statistics.lowerBoundSeconds, result.plans[0].prediction.stepSeconds);
  EXPECT_GE(result.statistics.lowerBoundSeconds, 0.85 * result.plans[0].prediction.stepSeconds);
}
