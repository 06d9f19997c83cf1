// The search offers only what the software can run.
#include "planner/search.h"
#include "test/planner/shapes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

using namespace espalier::planner;

namespace {

std::set<Recompute> classesOf(const StagePlan &chunk) { return {chunk.recompute.begin(), chunk.recompute.end()}; }

// Returns the leading layers of a chunk that recompute in full.
int fullLayers(const StagePlan &chunk) {
  return static_cast<int>(std::ranges::count(chunk.recompute, Recompute::Full));
}

bool isOfModel(const Plan &plan) {
  std::set<Recompute> classes;
  for (const StagePlan &chunk : plan.stages)
    classes.merge(classesOf(chunk));
  return classes.size() <= 1;
}

bool isOfChunks(const Plan &plan) {
  int most = 0;
  for (const StagePlan &chunk : plan.stages)
    most = std::max(most, fullLayers(chunk));
  return isOfModel(plan) || std::ranges::all_of(plan.stages, [&](const StagePlan &chunk) {
           return fullLayers(chunk) == std::min(most, chunk.layers) &&
                  !classesOf(chunk).contains(Recompute::Selective) &&
                  std::ranges::is_sorted(chunk.recompute, std::greater());
         });
}

// A model that needs recompute on most machines.
Problem randomProblem(std::mt19937 &random) {
  Machine machine = testMachine(1 + static_cast<int>(random() % 2), 4, 0);
  machine.memoryBytes = std::exp(std::uniform_real_distribution(std::log(8e8), std::log(8e9))(random));
  return shapeProblem(gpt(6 + 2 * static_cast<int>(random() % 4), 1024, 16, 32000, 1024), System{}, machine, 32);
}

} // namespace

// A plan of restricted software is a plan of the free search, so that it is never faster.
TEST(Runnable, RecomputeHasTheScopeOfTheSoftware) {
  std::mt19937 random(3);
  int mixed = 0, blocks = 0, none = 0;
  for (int trial = 0; trial < 40; ++trial) {
    SCOPED_TRACE(trial);
    Problem problem = randomProblem(random);
    SearchResult free = search(problem);
    problem.software.recomputeScope = RecomputeScope::Chunk;
    SearchResult chunk = search(problem);
    problem.software.recomputeScope = RecomputeScope::Model;
    SearchResult model = search(problem);
    ASSERT_EQ(free.plans.empty(), chunk.plans.empty());
    ASSERT_EQ(free.plans.empty(), model.plans.empty());
    none += free.plans.empty();
    if (free.plans.empty())
      continue;
    auto seconds = [](const SearchResult &result) { return result.plans[0].prediction.stepSeconds; };
    EXPECT_LE(seconds(free), seconds(chunk) * (1 + 1e-9));
    EXPECT_LE(seconds(chunk), seconds(model) * (1 + 1e-9));
    EXPECT_LE(chunk.statistics.lowerBoundSeconds, seconds(chunk) * (1 + 1e-9));
    mixed += !isOfModel(free.plans[0].plan);
    blocks += !isOfModel(chunk.plans[0].plan);
    for (const PricedPlan &plan : chunk.plans) {
      EXPECT_TRUE(isOfChunks(plan.plan));
      EXPECT_TRUE(plan.prediction.fits());
    }
    for (const PricedPlan &plan : model.plans)
      EXPECT_TRUE(isOfModel(plan.plan) && plan.prediction.fits());
  }
  EXPECT_GT(mixed, 5);
  EXPECT_GT(blocks, 2);
  EXPECT_LT(none, 20);
}

TEST(Runnable, StagesZeroAndSequencesAreThoseOfTheSoftware) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 20; ++trial) {
    SCOPED_TRACE(trial);
    Problem problem = randomProblem(random);
    problem.software.hasEvenStages = true;
    problem.software.zeroStages = {0, 3};
    for (const PricedPlan &priced : search(problem).plans) {
      const Plan &plan = priced.plan;
      EXPECT_TRUE(plan.zero == 0 || plan.zero == 3);
      EXPECT_TRUE(std::ranges::all_of(plan.stages,
                                      [&](const StagePlan &stage) { return stage.layers == plan.stages[0].layers; }));
      EXPECT_TRUE(priced.prediction.fits());
    }
    problem.pins.zero = 1; // a pin asks for it
    for (const PricedPlan &priced : search(problem).plans)
      EXPECT_EQ(priced.plan.zero, 1);
  }
}
