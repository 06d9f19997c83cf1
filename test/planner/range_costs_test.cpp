// A range of layers as one segment against the sum over its layers.
#include "planner/search.h"
#include "planner/search/range_costs.h"
#include "planner/search/stage_options.h"
#include "test/planner/shapes.h"

#include <gtest/gtest.h>

using namespace espalier::planner;

class RangeCostsTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Offloading, RangeCostsTest, testing::Bool());

TEST_P(RangeCostsTest, AreThoseOfTheLayersTogether) {
  Problem problem = distinctLayers(13, 2048, 16, withHost(testMachine(1, 8, 24e9)), 64);
  Plan plan;
  plan.offloadOptimizer = plan.offloadActivations = plan.offloadParameters = GetParam();
  plan.dp = 2, plan.tp = 2, plan.pp = 2, plan.microBatches = 32, plan.zero = GetParam() ? 3 : 1;
  CostTable table = buildCostTable(problem, plan), one = table;
  one.kinds.resize(1);
  RangeCosts ranges(table);
  for (int first = 0; first < 13; ++first)
    for (int count = 1; first + count <= 13; ++count)
      for (int recompute = 0; recompute < 3; ++recompute) {
        StageContent layers, range;
        layers.sends = range.sends = true;
        layers.inFlight = range.inFlight = 2;
        layers.layers.resize(problem.kinds.size());
        for (int layer = first; layer < first + count; ++layer)
          ++layers.layers[table.layerKinds[layer]][recompute];
        range.layers.resize(1);
        range.layers[0][recompute] = 1;
        one.kinds[0] = ranges.of(first, count);
        StageMemory wanted = stageMemory(problem, table, layers), got = stageMemory(problem, one, range);
        EXPECT_NEAR(got.total(), wanted.total(), 1e-12 * wanted.total()) << first << " " << count;
        EXPECT_NEAR(got.host(), wanted.host(), 1e-12 * wanted.host());
        EXPECT_EQ(got.workspace, wanted.workspace);
        EXPECT_NEAR(got.communication, wanted.communication, 1e-12 * wanted.communication);
        EXPECT_NEAR(chunkSeconds(one, range).total(), chunkSeconds(table, layers).total(), 1e-12);
        EXPECT_NEAR(stepPhase(one, range).total(), stepPhase(table, layers).total(), 1e-12);
      }
}

TEST(RangeCosts, SearchOverDistinctLayersIsThePricedPlanWhateverTheThreads) {
  Problem problem = distinctLayers(13, 2048, 16, testMachine(1, 8, 24e9), 64);
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
