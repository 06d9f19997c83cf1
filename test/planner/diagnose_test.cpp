// A problem that does not fit is answered with the binding bytes and with relaxations that work.
#include "planner/search.h"
#include "test/planner/shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

using namespace espalier::planner;
using testing::HasSubstr;

TEST(Diagnose, TooLittleMemoryNamesTheBytesAndMoreDevicesHelp) {
  Problem problem = shapeProblem(gpt(48, 6144, 64), System{}, testMachine(1, 8, 20e9), 64);
  SearchResult result = search(problem);
  ASSERT_TRUE(result.plans.empty());
  EXPECT_THAT(result.binding, HasSubstr("have 18.63 GB"));
  EXPECT_GT(result.nearest.prediction.peakBytes, 20e9);
  ASSERT_FALSE(result.relaxations.empty());
  EXPECT_THAT(result.relaxations.back().change, HasSubstr("devices="));
  for (const Relaxation &relaxation : result.relaxations)
    EXPECT_LE(relaxation.needBytes, 20e9);
  // The relaxation works: the larger machine has a plan.
  problem.machine.hosts = std::stoi(result.relaxations.back().change.substr(8)) / 8;
  EXPECT_FALSE(search(problem).plans.empty());
}

// The margin is the first relaxation, because it changes nothing in the plan.
TEST(Diagnose, ASufficientMarginIsNamedFirst) {
  Problem problem = shapeProblem(gpt(48, 6144, 64), System{}, testMachine(1, 8, 20e9), 64);
  double least = search(problem).nearest.prediction.peakBytes;
  problem.machine.memoryBytes = 0.98 * least;
  SearchResult without = search(problem);
  EXPECT_THAT(without.relaxations.front().change, testing::Not(HasSubstr("margin")));
  problem.machine.marginBytes = 0.04 * least;
  SearchResult result = search(problem);
  ASSERT_TRUE(result.plans.empty());
  double whole = 1.02 * least;
  char limit[64];
  std::snprintf(limit, sizeof limit, "max_device_memory=%.2fGB, without a margin", whole / 0x1p30);
  EXPECT_EQ(result.relaxations.front().change, limit);
  EXPECT_GT(result.relaxations.front().needBytes, problem.machine.memoryBytes);
  EXPECT_LE(result.relaxations.front().needBytes, whole);
}

TEST(Diagnose, PinsThatMakeItTooLargeAreNamed) {
  Problem problem = shapeProblem(gpt(24, 2048, 16), System{}, testMachine(1, 8, 16e9), 64);
  problem.pins.microBatchSize = 64;
  problem.pins.recompute = Recompute::None;
  SearchResult result = search(problem);
  ASSERT_TRUE(result.plans.empty());
  std::vector<std::string> changes;
  for (const Relaxation &relaxation : result.relaxations)
    changes.push_back(relaxation.change);
  EXPECT_THAT(changes, testing::Contains(HasSubstr("micro-batch size")));
}

// No single pin is the cause. The named pins are sufficient, and each is necessary.
TEST(Diagnose, PinsThatFailTogetherAreNamedTogether) {
  Problem problem = shapeProblem(gpt(24, 4096, 32), System{}, testMachine(1, 8, 40e9), 64);
  problem.pins.microBatchSize = 16;
  problem.pins.recompute = Recompute::None;
  problem.pins.zero = 0;
  problem.pins.dp = 4, problem.pins.tp = 2;
  problem.pins.pp = problem.pins.cp = 1;
  SearchResult result = search(problem);
  ASSERT_TRUE(result.plans.empty());
  ASSERT_FALSE(result.relaxations.empty());
  const std::string &change = result.relaxations.front().change;
  EXPECT_EQ(change, "recompute and the ZeRO stage left to the planner");
  for (bool recompute : {false, true})
    for (bool zero : {false, true}) {
      Problem changed = problem;
      if (recompute)
        changed.pins.recompute.reset();
      if (zero)
        changed.pins.zero.reset();
      SearchOptions quick;
      quick.diagnose = false;
      EXPECT_EQ(search(changed, quick).plans.empty(), !(recompute && zero));
    }
}

// Three hosts are enough, so that four are not the smallest change.
TEST(Diagnose, DevicesAreAsFewAsNeeded) {
  Problem problem = shapeProblem(gpt(24, 6144, 48), System{}, testMachine(1, 8, 12e9), 48);
  SearchResult result = search(problem);
  ASSERT_TRUE(result.plans.empty());
  ASSERT_FALSE(result.relaxations.empty());
  EXPECT_EQ(result.relaxations.back().change, "devices=24");
  problem.machine.hosts = 2;
  EXPECT_TRUE(search(problem).plans.empty());
  problem.machine.hosts = 3;
  EXPECT_FALSE(search(problem).plans.empty());
}

TEST(Diagnose, NothingDivides) {
  Problem problem = shapeProblem(gpt(3, 100, 5), System{}, testMachine(1, 7), 10);
  SearchResult result = search(problem);
  EXPECT_TRUE(result.plans.empty());
  EXPECT_THAT(result.binding, HasSubstr("no combination of axes"));
}
