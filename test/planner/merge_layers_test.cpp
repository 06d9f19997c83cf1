// Merged layers are a bound of the layers themselves, and a close one.
#include "planner/search/merge_layers.h"

#include "planner/search/bounds.h"
#include "test/planner/shapes.h"

#include <gtest/gtest.h>

#include <random>

using namespace espalier::planner;

namespace {

// Layers of many kinds, of which some collectives may run beside compute.
Problem unlikeLayers(std::mt19937 &random) {
  Problem problem = distinctLayers(24, 1024, 16, withHost(testMachine(4, 8)), 64);
  problem.machine.attentionEfficiency = random() % 2 ? 0.3 : 0;
  problem.machine.multiprocessors = random() % 2 ? 108 : 0;
  for (SegmentKind &kind : problem.kinds)
    for (PatternTerms &terms : kind.patterns)
      for (CollectiveTerm &term : terms.collectives)
        if (random() % 3 == 0)
          term.start = 0, term.wait = 1 + static_cast<int>(random() % 9);
  return problem;
}

Plan randomPlan(std::mt19937 &random) {
  Plan plan;
  plan.tp = 1 << random() % 4, plan.cp = 1 << random() % 2;
  plan.pp = 1 + static_cast<int>(random() % 4), plan.dp = 1 + static_cast<int>(random() % 4);
  plan.microBatchSize = 1 + static_cast<int>(random() % 4);
  plan.microBatches = plan.pp * (1 + static_cast<int>(random() % 5));
  plan.sequenceParallel = plan.tp > 1 && random() % 2;
  plan.zero = static_cast<int>(random() % 4);
  plan.schedule = kSchedules[random() % std::size(kSchedules)];
  plan.virtualStages = chunksOf(plan.schedule, 2);
  plan.offloadOptimizer = random() % 2;
  plan.offloadActivations = random() % 2;
  plan.offloadParameters = plan.zero == 3 && plan.offloadOptimizer && random() % 2;
  return plan;
}

TEST(MergeLayers, TakeNoMoreThanTheLayers) {
  std::mt19937 random(11);
  double closest = 0;
  for (int trial = 0; trial < 20; ++trial) {
    Problem problem = unlikeLayers(random), merged = mergeLayers(problem, /*threads=*/1 + trial % 2);
    EXPECT_EQ(merged.layers.size(), 1u); // all have the same patterns
    for (int i = 0; i < 50; ++i) {
      Plan plan = randomPlan(random);
      CostTable table = buildCostTable(problem, plan), mergedTable = buildCostTable(merged, plan);
      ASSERT_EQ(table.found, mergedTable.found);
      WorkSum whole = sumWork(problem, table), less = withoutLayers(sumWork(merged, mergedTable));
      constexpr double rounding = 1 + 1e-9;
      EXPECT_LE(less.work, whole.work * rounding);
      EXPECT_LE(less.once, whole.once * rounding);
      EXPECT_LE(less.savedBytes, whole.savedBytes * rounding);
      EXPECT_NEAR(less.stateBytes, whole.stateBytes, 1e-9 * whole.stateBytes);
      bool chunksAlike = random() % 2;
      EXPECT_LE(relaxedBound(less, problem.machine, plan, chunksAlike),
                relaxedBound(whole, problem.machine, plan, chunksAlike) * rounding);
      closest = std::max(closest, less.work / whole.work);
    }
  }
  EXPECT_GT(closest, 0.8);
}

} // namespace
