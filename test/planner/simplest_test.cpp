// Tests the choice between equally fast plans.
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
  auto of = [&](const ParallelConfig &config, bool recomputes = false) {
    return simplicityOf(config, machine, recomputes);
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

// No plan within the error is simpler than the chosen one, and no equally simple plan is faster.
TEST(Simplest, IsTheSimplestOfAllPlansWithinTheError) {
  std::mt19937 random(5);
  int others = 0;
  for (int trial = 0; trial < 12; ++trial) {
    SCOPED_TRACE(trial);
    Machine machine = testMachine(1 + trial % 2, 4, 0);
    machine.memoryBytes = std::exp(std::uniform_real_distribution<double>(std::log(3e8), std::log(6e9))(random));
    Problem problem = shapeProblem(gpt(4, 512, 8, 32000, 512), System{}, machine, 16);
    problem.error.comparison = 0.02 + 0.02 * static_cast<double>(random() % 6);
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
    EXPECT_TRUE(result.isEqual(chosen));
    EXPECT_TRUE(chosen.prediction.fits());
    Simplicity least = simplicityOf(chosen.plan, machine);
    for (const PricedPlan &plan : all)
      if (plan.prediction.stepSeconds <= (1 + problem.error.comparison) * fastest) {
        Simplicity other = simplicityOf(plan.plan, machine);
        EXPECT_LE(least, other);
        EXPECT_TRUE(least < other || chosen.prediction.stepSeconds <= plan.prediction.stepSeconds * (1 + 1e-8));
      }
    others += chosen.prediction.stepSeconds > fastest * (1 + 1e-8);
  }
  EXPECT_GT(others, 2);
}

// Without an error the fastest plan is chosen. With one, dp alone is chosen for a small model that ZeRO 3 makes 1 %
// faster.
TEST(Simplest, SmallModelIsReplicated) {
  Problem problem = shapeProblem(gpt(12, 768, 12, 50304, 1024), System{}, testMachine(1, 8), 512);
  EXPECT_GT(search(problem).plans[0].plan.zero, 0);
  problem.error.comparison = 0.05;
  SearchResult result = search(problem);
  EXPECT_EQ(result.plans[0].plan.dp, 8);
  EXPECT_EQ(result.plans[0].plan.zero, 0);
  EXPECT_TRUE(result.statistics.optimal);
  EXPECT_LT(result.statistics.fastestSeconds, result.plans[0].prediction.stepSeconds);
}

// Plans with other axes are compared with the family error, and those with more ranks than measured with a larger one.
TEST(Simplest, ComparisonsOfOtherAxesHaveTheirOwnError) {
  ModelError error{0.2, 0.05, 0.1, 0.3};
  error.measured[Axis::Cp] = 4;
  EXPECT_EQ(comparisonError(error, config(2, 4, 1, 0), config(2, 4, 1, 1, Schedule::ZeroBubbleH1)), 0.05);
  EXPECT_EQ(comparisonError(error, config(2, 4, 1, 0), config(4, 2, 1, 0)), 0.1);
  EXPECT_EQ(comparisonError(error, config(2, 1, 1, 3), config(2, 1, 1, 1)), 0.1);
  EXPECT_EQ(comparisonError(error, config(2, 2, 1, 0), config(2, 1, 8, 0)), 0.3);
  EXPECT_EQ(comparisonError(error, config(2, 1, 8, 0), config(2, 2, 1, 0)), 0.3);
  error.family = 0; // not stated
  EXPECT_EQ(comparisonError(error, config(2, 4, 1, 0), config(4, 2, 1, 0)), 0.05);
}

// With a family error, the simplest layout within it is chosen, and of this layout a plan within the error of plans
// with the same axes of its fastest plan.
TEST(Simplest, ChoosesTheLayoutFirst) {
  Problem problem = shapeProblem(gpt(12, 768, 12, 50304, 1024), System{}, testMachine(2, 8), 64);
  problem.error.comparison = 1e-4;
  PricedPlan fastest = search(problem).plans.front();
  problem.error.family = 10; // all layouts are equal
  SearchResult result = search(problem);
  const PricedPlan &chosen = result.plans.front();
  EXPECT_EQ(simplicityOf(chosen.plan, problem.machine).layout(), Simplicity{}.layout());
  EXPECT_TRUE(result.isEqual(chosen));
  Problem replicated = problem;
  replicated.pins.tp = replicated.pins.pp = replicated.pins.cp = 1;
  replicated.error = {};
  for (int zero : {0, 1}) {
    replicated.pins.zero = zero;
    EXPECT_LE(chosen.prediction.stepSeconds, (1 + 1e-4) * search(replicated).statistics.fastestSeconds);
  }
  EXPECT_LE(fastest.prediction.stepSeconds, chosen.prediction.stepSeconds);
}
