// Tests the choice between equally fast plans.
#include "planner/model/error.h"
#include "planner/model/simplicity.h"
#include "planner/search.h"
#include "test/planner/shapes.h"

#include <gtest/gtest.h>

#include <random>

using namespace espalier::planner;

namespace {

ParallelConfig config(int tp, int pp, int cp, int zero, Schedule schedule = Schedule::OneFOneB) {
  ParallelConfig config;
  config.tp = tp, config.pp = pp, config.cp = cp, config.zero = zero, config.schedule = schedule;
  return config;
}

// Returns the fastest plan for each value of the simplicity criteria, from searches without the simplicity rule.
std::vector<PricedPlan> fastestOfEach(const Problem &problem) {
  std::vector<PricedPlan> plans;
  SearchOptions fastest;
  fastest.simplest = fastest.diagnose = false;
  fastest.alternatives = 0;
  int devices = problem.machine.devices();
  for (int tp = 1; tp <= devices; ++tp)
    for (int pp = 1; tp * pp <= devices; ++pp)
      for (int cp = 1; tp * pp * cp <= devices; ++cp)
        for (auto [zero, group] : {std::pair(0, 0), {1, 0}, {2, 0}, {3, 0}, {3, pp == 1 ? 4 / (tp * cp) : 0}})
          for (bool isPlain : {true, false})
            for (std::optional<Recompute> recompute : {std::optional(Recompute::None), std::optional<Recompute>()}) {
              Problem pinned = problem;
              pinned.pins.tp = tp, pinned.pins.pp = pp, pinned.pins.cp = cp, pinned.pins.zero = zero;
              pinned.pins.zeroGroup = group;
              pinned.pins.recompute = recompute;
              if (isPlain)
                pinned.pins.schedule = Schedule::OneFOneB;
              SearchResult result = search(pinned, fastest);
              plans.insert(plans.end(), result.plans.begin(), result.plans.end());
            }
  return plans;
}

} // namespace

TEST(Simplicity, OrderIsThatOfTheDesign) {
  Machine machine = testMachine(2, 8);
  auto of = [&](ParallelConfig config, bool recomputes = false) {
    if (recomputes)
      config.recompute = Recompute::Full;
    return simplicityOf(config, machine);
  };
  EXPECT_LT(of(config(1, 1, 1, 0)), of(config(1, 1, 1, 1)));
  EXPECT_LT(of(config(1, 1, 1, 3)), of(config(8, 4, 1, 0))); // fewer techniques
  EXPECT_LT(of(config(1, 1, 1, 1)), of(config(1, 2, 1, 0))); // ZeRO 1 does not count
  EXPECT_LT(of(config(8, 4, 1, 0)), of(config(8, 4, 1, 0), /*recomputes=*/true));
  EXPECT_LT(of(config(8, 4, 1, 1), true), of(config(1, 4, 8, 0))); // recompute does not count
  EXPECT_LT(of(config(8, 1, 2, 1)), of(config(8, 1, 4, 0)));       // smaller cp
  EXPECT_LT(of(config(8, 1, 1, 3)), of(config(16, 1, 1, 2)));      // tensor parallelism inside a host
  EXPECT_LT(of(config(8, 1, 1, 1)), of(config(4, 1, 1, 2)));       // lower ZeRO stage
  EXPECT_LT(of(config(1, 4, 1, 0)), of(config(1, 4, 1, 0, Schedule::ZeroBubbleH1)));
  ParallelConfig offloading = config(1, 1, 1, 1);
  offloading.offloadOptimizer = true;
  EXPECT_LT(of(config(1, 4, 1, 1)), of(offloading));
  EXPECT_EQ(of(config(2, 1, 1, 0)), of(config(4, 1, 1, 0)));
}

// More than 8 stages, a bubble above 15 % and a full memory count like techniques.
TEST(Simplicity, ExtentsAreComplexity) {
  Machine machine = testMachine(4, 8);
  PricedPlan plan;
  static_cast<ParallelConfig &>(plan.plan) = config(1, 8, 1, 0);
  plan.prediction.bubbleShare = 0.15, plan.prediction.peakBytes = 97, plan.prediction.memoryLimitBytes = 100;
  EXPECT_EQ(simplicityOf(plan, machine).techniques, 1);
  plan.plan.pp = 16;
  EXPECT_EQ(simplicityOf(plan, machine).techniques, 2);
  plan.prediction.bubbleShare = 0.16;
  EXPECT_EQ(simplicityOf(plan, machine).techniques, 3);
  plan.prediction.peakBytes = 98;
  EXPECT_EQ(complexitiesOf(plan),
            (std::vector<std::string>{"a pipeline", "16 stages", "a bubble of 16 %", "a full memory"}));
}

// No plan within the limit is simpler than the answer, and no equally simple plan is faster.
TEST(Simplest, IsTheSimplestOfAllPlansWithinTheLimit) {
  std::mt19937 random(5);
  int others = 0;
  for (int trial = 0; trial < 12; ++trial) {
    SCOPED_TRACE(trial);
    Machine machine = testMachine(1 + trial % 2, 4, 0);
    machine.memoryBytes = std::exp(std::uniform_real_distribution<double>(std::log(3e8), std::log(6e9))(random));
    Problem problem = shapeProblem(gpt(4, 512, 8, 32000, 512), System{}, machine, 16);
    problem.preferSimple = 0.02 + 0.02 * static_cast<double>(random() % 6);
    SearchResult result = search(problem);
    std::vector<PricedPlan> all = fastestOfEach(problem);
    ASSERT_EQ(result.plans.empty(), all.empty());
    if (all.empty())
      continue;
    const PricedPlan &chosen = result.plans.front();
    double fastest = std::numeric_limits<double>::infinity();
    for (const PricedPlan &plan : all)
      fastest = std::min(fastest, plan.prediction.stepSeconds);
    EXPECT_NEAR(result.statistics.fastestSeconds, fastest, 1e-8 * fastest);
    EXPECT_LE(chosen.prediction.stepSeconds, (1 + problem.preferSimple) * fastest * (1 + 1e-8));
    EXPECT_TRUE(chosen.prediction.fits());
    Simplicity least = simplicityOf(chosen, machine);
    for (const PricedPlan &plan : all)
      if (plan.prediction.stepSeconds <= (1 + problem.preferSimple) * fastest) {
        Simplicity other = simplicityOf(plan, machine);
        EXPECT_LE(least, other);
        EXPECT_TRUE(least < other || chosen.prediction.stepSeconds <= plan.prediction.stepSeconds * (1 + 1e-8));
      }
    others += chosen.prediction.stepSeconds > fastest * (1 + 1e-8);
  }
  EXPECT_GT(others, 2);
}

// By default the fastest plan is chosen. With a preference for simple plans, dp alone is chosen for a small model that
// ZeRO 3 makes 1 % faster.
TEST(Simplest, SmallModelIsReplicated) {
  Problem problem = shapeProblem(gpt(12, 768, 12, 50304, 1024), System{}, testMachine(1, 8), 512);
  EXPECT_GT(search(problem).plans[0].plan.zero, 0);
  problem.preferSimple = 0.05;
  SearchResult result = search(problem);
  EXPECT_EQ(result.plans[0].plan.dp, 8);
  EXPECT_EQ(result.plans[0].plan.zero, 0);
  EXPECT_TRUE(result.statistics.optimal);
  EXPECT_LT(result.statistics.fastestSeconds, result.plans[0].prediction.stepSeconds);
}

// Plans with other axes are compared with the family error, and those with more ranks than measured with a larger one.
TEST(Simplest, ComparisonsOfOtherAxesHaveTheirOwnError) {
  ModelError error{.time = 0.2, .comparison = 0.05, .family = 0.1, .unmeasured = 0.3};
  error.measured[Axis::Cp] = 4;
  EXPECT_EQ(comparisonError(error, config(2, 4, 1, 0), config(2, 4, 1, 1, Schedule::ZeroBubbleH1)), 0.05);
  EXPECT_EQ(comparisonError(error, config(2, 4, 1, 0), config(4, 2, 1, 0)), 0.1);
  EXPECT_EQ(comparisonError(error, config(2, 1, 1, 3), config(2, 1, 1, 1)), 0.1);
  EXPECT_EQ(comparisonError(error, config(2, 2, 1, 0), config(2, 1, 8, 0)), 0.3);
  EXPECT_EQ(comparisonError(error, config(2, 1, 8, 0), config(2, 2, 1, 0)), 0.3);
  error.family = 0; // not stated
  EXPECT_EQ(comparisonError(error, config(2, 4, 1, 0), config(4, 2, 1, 0)), 0.05);
}

// The other plans follow by ascending time. The next simpler plan is simpler than the answer and above the limit.
TEST(Simplest, NextSimplerPlanIsReported) {
  Problem problem = shapeProblem(gpt(24, 2048, 16), System{}, testMachine(2, 8, 24e9), 128);
  problem.preferSimple = 0.001;
  SearchResult result = search(problem);
  for (size_t i = 2; i < result.plans.size(); ++i)
    EXPECT_LE(result.plans[i - 1].prediction.stepSeconds, result.plans[i].prediction.stepSeconds);
  ASSERT_TRUE(result.simpler);
  EXPECT_LT(simplicityOf(*result.simpler, problem.machine), simplicityOf(result.plans[0], problem.machine));
  EXPECT_GT(result.simpler->prediction.stepSeconds, 1.001 * result.statistics.fastestSeconds);
  problem.preferSimple = 1.01 * (result.simpler->prediction.stepSeconds / result.statistics.fastestSeconds - 1);
  EXPECT_LE(simplicityOf(search(problem).plans[0], problem.machine), simplicityOf(*result.simpler, problem.machine));
}

// A better machine never has a slower fastest plan. An answer may be up to `preferSimple` slower than the fastest plan,
// so that it grows by at most this share: a rule that sometimes takes the slower of two plans cannot be monotone in
// both times.
TEST(Simplest, ABetterMachineNeverHasASlowerAnswer) {
  std::mt19937 random(11);
  auto uniform = [&](double low, double high) { return std::uniform_real_distribution(low, high)(random); };
  int slower = 0, faster = 0;
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(trial);
    int64_t hidden = 256 << random() % 4;
    Machine machine = testMachine(1 << random() % 3, 1 << random() % 3, 0);
    machine.memoryBytes = std::exp(uniform(std::log(2e9), std::log(4e10)));
    machine.network.bytesPerSecond *= std::exp(uniform(-2, 1));
    Problem problem = shapeProblem(gpt(2 + static_cast<int>(random() % 7), hidden, hidden / 64, 32000, 512), System{},
                                   machine, 8 << random() % 3);
    double factor = std::exp(uniform(0.01, 1));
    Problem better = problem;
    Machine &fast = better.machine;
    switch (trial % 4) {
    case 0:
      fast.link.bytesPerSecond = std::min(factor * fast.link.bytesPerSecond, 0.49 * fast.memoryBytesPerSecond);
      break;
    case 1:
      fast.network.bytesPerSecond *= factor;
      break;
    case 2:
      fast.memoryBytesPerSecond *= factor, fast.memoryBytes *= factor;
      break;
    default:
      fast.peakFlops *= factor;
    }
    SearchResult before = search(problem), after = search(better);
    if (before.plans.empty())
      continue;
    ASSERT_FALSE(after.plans.empty());
    double seconds = before.plans[0].prediction.stepSeconds;
    EXPECT_LE(after.plans[0].prediction.stepSeconds, seconds * (1 + 1e-9));
    faster += after.plans[0].prediction.stepSeconds < 0.999 * seconds;
    problem.preferSimple = better.preferSimple = 0.03;
    double answer = search(problem).plans[0].prediction.stepSeconds;
    double answerAfter = search(better).plans[0].prediction.stepSeconds;
    EXPECT_LE(answerAfter, 1.03 * std::min(seconds, answer) * (1 + 1e-9));
    slower += answerAfter > answer * (1 + 1e-9);
  }
  std::printf("%d of 200 are faster, %d answers are slower by at most 3 %%\n", faster, slower);
  EXPECT_GT(faster, 100);
}

// The largest error of what a plan contains counts. Ranks of tp, ep and cp that exceed a host communicate over hosts.
TEST(TimeError, FollowsTheContentOfThePlan) {
  Problem problem = shapeProblem(gpt(12, 768, 12, 50304, 1024), System{}, testMachine(4, 8), 512);
  ModelError &error = problem.error;
  error.time = 0.1;
  for (size_t i = 0; i < error.content.size(); ++i)
    error.content[i] = 0.2 + 0.1 * static_cast<double>(i);
  auto errorOf = [&](ParallelConfig config) { return timeError(problem, config); };
  EXPECT_EQ(errorOf(config(8, 2, 1, 1)), 0.1);
  EXPECT_EQ(errorOf(config(4, 1, 2, 1)), 0.1); // inside a host
  EXPECT_EQ(errorOf(config(4, 1, 4, 1)), error.content[Content::ContextOverHosts]);
  ParallelConfig hybrid = config(1, 1, 1, 3);
  hybrid.dp = 16, hybrid.zeroGroup = 8;
  EXPECT_EQ(errorOf(hybrid), error.content[Content::HybridShards]);
  problem.error.measuredDevices = 8;
  EXPECT_EQ(errorOf(hybrid), error.content[Content::MoreDevices]);
  problem.matmulFormat.name = "fp8_hybrid";
  EXPECT_EQ(errorOf(config(1, 1, 1, 0)), error.content[Content::Format]);
  problem.matmulFormat.name.clear();
  problem.routing.choices = 2;
  ParallelConfig experts = config(1, 1, 1, 0);
  experts.ep = 8;
  EXPECT_EQ(errorOf(experts), error.content[Content::Experts]);
  experts.ep = 16, problem.error.measuredDevices = 0;
  EXPECT_EQ(errorOf(experts), error.content[Content::ExpertsOverHosts]);
  error.time = 0; // unknown
  EXPECT_EQ(errorOf(experts), 0);
  error.time = 2;
  EXPECT_EQ(errorOf(experts), 2);
}
