// Compares two plans, and names the constraints that make a wish impossible.
#include "planner/answer/explain.h"
#include "planner/answer/measured.h"
#include "planner/answer/what_if.h"
#include "planner/answer/why_not.h"
#include "test/planner/shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace espalier::planner;
using testing::HasSubstr;

namespace {
Problem problemOn(int hosts, int64_t batch = 96) {
  return shapeProblem(gpt(24, 2048, 16), System{}, testMachine(hosts, 8, 40e9), batch);
}
} // namespace

TEST(WhatIf, RatiosAgreeWithEachOther) {
  WhatIf answer;
  answer.before = search(problemOn(4)).plans.at(0);
  answer.after = search(problemOn(3)).plans.at(0);
  answer.devicesBefore = 32;
  answer.devicesAfter = 24;
  EXPECT_GT(answer.stepRatio(), 1);
  EXPECT_NEAR(answer.stepRatio() * answer.tokenRateRatio(), 1, 1e-12); // the global batch is unchanged
  EXPECT_NEAR(answer.costRatio(), answer.stepRatio() * 24 / 32, 1e-12);
  EXPECT_EQ(answer.after.plan.globalBatch(), 96);
  answer.idleDevices = 8;
  EXPECT_THAT(printWhatIf(answer), HasSubstr("8 devices idle\nstep time x "));
}

TEST(WhatIf, PinnedPlansAreComparedWithTheBestToo) {
  Problem pinned = problemOn(4);
  pinned.pins.tp = 8;
  WhatIf answer;
  answer.before = search(pinned).plans.at(0);
  answer.after = search(problemOn(3)).plans.at(0);
  answer.devicesBefore = 32;
  answer.devicesAfter = 24;
  EXPECT_FALSE(answer.ofBest());
  answer.bestBefore = search(problemOn(4)).plans.at(0);
  ASSERT_TRUE(answer.ofBest());
  EXPECT_GT(answer.ofBest()->stepRatio(), answer.stepRatio()); // the pinned plan is slower than the best
  EXPECT_FALSE(answer.ofBest()->ofBest());
  std::string text = printWhatIf(answer);
  EXPECT_THAT(text, HasSubstr("best plans in place of pinned ones:\nnow  32 devices"));
  EXPECT_THAT(text, HasSubstr(describePlan(answer.bestBefore->plan)));
}

TEST(WhatIf, BatchesThatWouldDivideAreNamed) {
  Problem problem = problemOn(13); // 104 = 8 * 13 devices; 13 divides neither heads nor layers nor 96
  problem.pins.pp = 1;
  SearchResult result = search(problem);
  ASSERT_TRUE(result.plans.empty());
  EXPECT_THAT(result.binding, HasSubstr("the global batch (96)"));
  ASSERT_GE(result.relaxations.size(), 2u);
  EXPECT_EQ(result.relaxations[0].change, "global_batch=91");
  EXPECT_EQ(result.relaxations[1].change, "global_batch=104");
}

TEST(WhyNot, TheChosenPlanIsAsWishedOrTheWishIsImpossible) {
  Problem problem = problemOn(2);
  SearchResult solved = search(problem);
  const Plan &chosen = solved.plans.at(0).plan;
  Pins wish;
  wish.tp = chosen.tp;
  wish.pp = chosen.pp;
  WhyNot same = whyNot(problem, solved, wish);
  EXPECT_EQ(same.moreSeconds, 0);
  EXPECT_TRUE(same.violated.empty());
  wish = {};
  wish.tp = 5;
  EXPECT_TRUE(whyNot(problem, solved, wish).impossible);
  wish = {};
  wish.tp = wish.pp = wish.cp = 1;
  wish.recompute = Recompute::None;
  wish.microBatchSize = chosen.microBatchSize == 3 ? 6 : 3;
  problem.machine.memoryBytes = 12e9;
  WhyNot large = whyNot(problem, solved, wish);
  EXPECT_FALSE(large.impossible);
  EXPECT_THAT(large.violated.at(0), HasSubstr("memory: the plan that needs least takes"));
}

// A pinned plan may satisfy the wish without being its best plan. The bound belongs to the best plan.
TEST(WhyNot, APinnedPlanAsWishedIsNotMistakenForTheBest) {
  Problem problem = problemOn(2);
  SearchResult best = search(problem), pinned = best;
  pinned.plans = {best.plans.back()};
  pinned.statistics.optimal = false;
  WhyNot answer = whyNot(problem, pinned, {});
  EXPECT_LT(answer.moreSeconds, 0);
  EXPECT_DOUBLE_EQ(answer.best.prediction.stepSeconds, best.plans[0].prediction.stepSeconds);
  EXPECT_LE(answer.lowerBoundSeconds, answer.best.prediction.stepSeconds);
}

TEST(WhyNot, UnshardedExpertsAreAnotherPlan) {
  Problem problem = problemOn(2);
  problem.limits.push_back({.name = "experts", .value = 8, .axis = Axis::Ep});
  SearchResult split = search(problem);
  problem.pins.splitsExperts = false; // as in terms that are profiled for unsharded experts
  WhyNot answer = whyNot(problem, split, problem.pins);
  EXPECT_TRUE(split.plans.at(0).plan.splitsExperts);
  EXPECT_FALSE(answer.best.plan.splitsExperts);
}

// The measured plan then takes the measured time, and a time without a factor is refused.
TEST(Measured, RatesGiveTheMeasuredStep) {
  Problem problem = problemOn(4);
  problem.error = {.time = 0.2, .comparison = 0.05, .family = 0.1};
  problem.error.content[Content::Experts] = 0.5;
  PricedPlan own = search(problem).plans.at(0);
  for (double factor : {0.5, 1.0, 1.3}) {
    double seconds = own.prediction.stepSeconds * factor;
    std::optional<double> rates = rateFactor(problem, own.plan, seconds);
    ASSERT_TRUE(rates);
    Problem scaled = problem;
    useMeasured(scaled, *rates);
    EXPECT_NEAR(pricePlan(scaled, own.plan).prediction.stepSeconds, seconds, 1e-6 * seconds);
    EXPECT_GT((1 / factor - 1) * (*rates - 1), factor == 1 ? -1e-6 : 0);
    EXPECT_EQ(scaled.error.time, 0.1);
  }
  EXPECT_FALSE(rateFactor(problem, own.plan, own.prediction.stepSeconds / 1000));
  EXPECT_FALSE(rateFactor(problem, own.plan, own.prediction.stepSeconds * 1000));
}
