// Explanations of plans: differences add up, and refusals state bytes.
#include "planner/answer/compare.h"
#include "planner/answer/explain.h"
#include "planner/answer/trace.h"
#include "planner/answer/why_not.h"
#include "planner/model/simplicity.h"
#include "test/planner/shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <map>
#include <sstream>

using namespace espalier::planner;
using testing::HasSubstr;

namespace {
Problem problem() { return shapeProblem(gpt(24, 2048, 16), System{}, testMachine(2, 8, 24e9), 128); }
} // namespace

TEST(Explain, WhyNotSumsToTheDifference) {
  SearchResult result = search(problem());
  ASSERT_FALSE(result.plans.empty());
  Pins wish;
  wish.tp = 8;
  WhyNot answer = whyNot(problem(), result, wish);
  ASSERT_TRUE(answer.violated.empty());
  double sum = 0;
  for (const auto &[name, seconds] : answer.items)
    sum += seconds;
  EXPECT_GT(answer.moreSeconds, 0);
  EXPECT_NEAR(sum, answer.moreSeconds, 1e-9);
  EXPECT_THAT(printWhyNot(answer), HasSubstr("in all"));
}

// A step of 3 ms that takes 20 us more. Differences below the last digit are not shown.
TEST(Explain, WhyNotOfShortStepsHasDigits) {
  WhyNot answer;
  answer.best.prediction.stepSeconds = answer.lowerBoundSeconds = 0.003;
  answer.items = {{"compute", 2.1e-5}, {"bubble", -1e-6}, {"optimizer", -1e-9}};
  answer.moreSeconds = 2e-5;
  EXPECT_THAT(printWhyNot(answer),
              HasSubstr("   +0.000021 s  compute\n   -0.000001 s  bubble\n   +0.000020 s  in all\n"));
}

TEST(Explain, WhyNotReportsTheUnprovedGap) {
  WhyNot answer;
  answer.best.prediction.stepSeconds = answer.chosen.prediction.stepSeconds = answer.lowerBoundSeconds = 2;
  EXPECT_THAT(printWhyNot(answer), testing::Not(HasSubstr("faster")));
  answer.lowerBoundSeconds = 1.5;
  EXPECT_THAT(printWhyNot(answer), HasSubstr("no plan as wished is faster than 1.5 s, this one takes 2 s"));
}

// With a comparison error of 5 %, 10.4 s is the same as 10 s but 10.6 s is not. Both times are printed with their
// error.
TEST(Explain, WhyNotBeginsWithAVerdict) {
  WhyNot answer;
  answer.error = {.time = 0.12, .comparison = 0.05};
  answer.chosen.prediction.stepSeconds = 10, answer.best.prediction.stepSeconds = 10.4;
  answer.chosen.prediction.timeError = answer.best.prediction.timeError = answer.error.time;
  answer.moreSeconds = 0.4;
  EXPECT_EQ(verdict(answer), "+4.0 %, same; simpler: no; 10.4 s ± 12 % as wished, 10 s ± 12 % as chosen");
  EXPECT_EQ(printWhyNot(answer).find(verdict(answer) + "\n"), 0u);
  answer.best.prediction.stepSeconds = 10.6, answer.moreSeconds = 0.6;
  EXPECT_EQ(verdict(answer), "0.6 s slower, +6.0 %, faster 6 %; 10.6 s ± 12 % as wished, 10 s ± 12 % as chosen");
}

// 175B: at most two plans of each family.
TEST(Explain, TableShowsErrorAndMargin) {
  Problem large = shapeProblem(gpt(96, 12288, 96), System{}, testMachine(128, 8, 76e9), 1536);
  large.error = {.time = 0.12, .comparison = 0.05};
  large.machine.marginBytes = 4e9;
  SearchResult result = search(large);
  ASSERT_GT(result.plans.size(), 2u);
  std::map<int, int> families;
  for (const PricedPlan &priced : result.plans)
    EXPECT_LE(++families[familyOf(priced.plan)], 2) << describePlan(priced.plan);
  std::string text = explainPlans(result);
  EXPECT_THAT(text, HasSubstr(describeSeconds(result.plans[0].prediction.stepSeconds, 0.12)));
  EXPECT_THAT(text, HasSubstr(" s ± 12 % "));
  EXPECT_THAT(text, testing::ContainsRegex("\nlimit +70.78\nmargin +3.73  left free of 74.51 GB\n"));
  EXPECT_THAT(text, HasSubstr("same: its 80 % interval contains zero"));
}

TEST(Explain, WhyNotNamesTheConstraint) {
  SearchResult result = search(problem());
  Pins wish;
  wish.microBatchSize = 128;
  wish.recompute = Recompute::None;
  WhyNot answer = whyNot(problem(), result, wish);
  ASSERT_FALSE(answer.violated.empty());
  EXPECT_THAT(answer.violated[0], HasSubstr("have 22.35 GB"));
  wish = {};
  wish.tp = 5;
  EXPECT_THAT(whyNot(problem(), result, wish).violated[0],
              HasSubstr("tp 5 · pp 1 · cp 1 needs a multiple of 5 devices, cluster test has 16"));
}

// With one tensor rank there is nothing to split. So a wish for sequence parallelism implies more tensor ranks.
TEST(Explain, WishForSequenceParallelismIsHonoured) {
  Problem small = shapeProblem(gpt(4, 512, 8), System{}, testMachine(1, 8), 64);
  SearchResult result = search(small);
  ASSERT_EQ(result.plans[0].plan.tp, 1);
  Pins wish;
  wish.sequenceParallel = true;
  WhyNot answer = whyNot(small, result, wish);
  EXPECT_TRUE(answer.best.plan.sequenceParallel);
  EXPECT_GT(answer.best.plan.tp, 1);
  EXPECT_GT(answer.moreSeconds, 0);
  wish.tp = 1;
  EXPECT_TRUE(whyNot(small, result, wish).impossible);
}

// Neighbouring stages with equal memory share a line.
TEST(Explain, TableHasStagesAndTheProof) {
  Problem pinned = problem();
  pinned.pins.pp = 4;
  std::string text = explainPlans(search(pinned));
  EXPECT_THAT(text, HasSubstr("pp 4"));
  EXPECT_THAT(text, testing::ContainsRegex("\n +[0-9-]*3 "));
  EXPECT_THAT(text, HasSubstr("proved best"));
  EXPECT_THAT(text, HasSubstr("compute is"));
}

// Rows ascend by time whichever plan is first, and the planner's choice is the answer.
TEST(Explain, TableComparesTheRunFilesPlanWithTheAnswer) {
  SearchResult result = search(problem());
  EXPECT_THAT(explainPlans(result, FirstPlan::Best, "use it"), HasSubstr("\nanswer "));
  EXPECT_THAT(explainPlans(result, FirstPlan::Best, "use it"),
              HasSubstr("\nuse it\nthe lines below describe the answer"));
  EXPECT_THAT(explainPlans(result), HasSubstr("\nwhy: the fastest plan"));
  PricedPlan own = result.plans.front();
  own.prediction.stepSeconds *= 2;
  result.plans.insert(result.plans.begin(), own);
  std::string text = explainPlans(result, FirstPlan::Own, "use it");
  EXPECT_THAT(text, testing::ContainsRegex("\nyours  .*\\+100 %"));
  EXPECT_LT(text.find("\nanswer "), text.find("\nyours "));
  EXPECT_THAT(text, HasSubstr("\nuse it\nthe lines below describe your plan\n"));
  result.plans.resize(1);
  EXPECT_THAT(explainPlans(result, FirstPlan::Own, "use it"), testing::Not(HasSubstr("use it")));
  EXPECT_THAT(explainPlans(result, FirstPlan::OwnAndBest, ""), HasSubstr("your plan is the answer\nthe lines below"));
}

// A difference within the error is the same. Outside of it, the probability follows from the 80 % interval.
TEST(Explain, ComparisonsHaveOneWord) {
  EXPECT_EQ(describe(Comparison{0.04, 0.05}), "+4.0 %, same");
  EXPECT_EQ(describe(Comparison{-0.04, 0.05}), "-4.0 %, same");
  EXPECT_EQ(describe(Comparison{0.0501, 0.05}), "+5.0 %, faster 10 %");
  EXPECT_EQ(describe(Comparison{-0.2, 0.05}), "-20 %, faster 100 %");
  EXPECT_EQ(describe(Comparison{0.1, 0}), "+10 %");
  EXPECT_NEAR((Comparison{0, 0.05}).probabilityFaster(), 0.5, 1e-12);
}

// A wide gap is explained, with the plain plan beside it.
TEST(Explain, AWideGapIsSaidWithThePlainPlan) {
  SearchResult result = search(problem());
  EXPECT_FALSE(result.plain);
  EXPECT_THAT(explainPlans(result), testing::Not(HasSubstr("not searched in full")));
  result.statistics.optimal = false;
  result.statistics.lowerBoundSeconds = 0.75 * result.statistics.fastestSeconds;
  result.plain = result.plans.back();
  result.plain->plan.schedule = Schedule::OneFOneB;
  result.plainStatistics.optimal = true;
  EXPECT_NEAR(result.statistics.gap(), 0.25, 1e-12);
  std::string text = explainPlans(result);
  EXPECT_THAT(text, HasSubstr("up to 25 % faster"));
  EXPECT_THAT(text, HasSubstr("plain 1F1B takes " + describeSeconds(result.plain->prediction)));
}

// The memory of a plan stands beside its limit.
TEST(Explain, TableShowsMemoryWithItsLimit) {
  SearchResult result = search(problem());
  result.plans.resize(1);
  result.plans[0].prediction.peakBytes = 16.4 * 0x1p30, result.plans[0].prediction.memoryLimitBytes = 30 * 0x1p30;
  EXPECT_THAT(explainPlans(result), HasSubstr(" 16.4/30 GB\n"));
}

TEST(Explain, LinesHaveAtMostAHundredColumns) {
  Problem large = shapeProblem(gpt(24, 8192, 64), System{}, withHost(testMachine(16, 8, 24e9)), 1024);
  SearchOptions all;
  all.all = true;
  std::istringstream lines(explainPlans(search(large, all)));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_LE(line.size(), 100u) << line;
  EXPECT_GT(count, 12);
}

TEST(Explain, BytesAreInTheUnitsOfRunFiles) {
  EXPECT_EQ(describeBytes(30 * 0x1p30), "30.00 GB");
  EXPECT_EQ(describeBytes(4.1 * 0x1p20), "4.10 MB");
  EXPECT_EQ(describeBytes(200), "200 B");
  // No class of a small model is printed as zero.
  std::string text = explainPlans(search(shapeProblem(gpt(2, 64, 4, 256, 64), System{}, testMachine(1, 1, 2e9), 4)));
  EXPECT_THAT(text, HasSubstr(" MB/"));
  EXPECT_THAT(text, HasSubstr("(MB per rank)"));
  EXPECT_THAT(text, HasSubstr(" MB of 1.86 GB)"));
}

// Rounded sums never make the remainder of a step without a pipeline negative.
TEST(Explain, NoBubbleIsNegative) {
  for (int devices : {1, 2, 3, 4, 6, 7, 8})
    for (const PricedPlan &priced : search(shapeProblem(gpt(5, 768, 12), System{}, testMachine(1, devices), 840)).plans)
      EXPECT_FALSE(std::signbit(priced.prediction.time.bubble)) << describePlan(priced.plan);
}

// Prints the exposed communication of every axis, not only of the largest.
TEST(Explain, EveryPartOfTheStepIsPrinted) {
  Prediction prediction;
  prediction.stepSeconds = 10, prediction.peakBytes = 1, prediction.memoryLimitBytes = 2;
  prediction.time.compute = 6.5, prediction.time.bubble = 2, prediction.time.communication[Axis::Tp] = 0.9;
  prediction.time.communication[Axis::Dp] = 0.3, prediction.time.communication[Axis::Cp] = 0.2;
  prediction.time.communication[Axis::Pp] = 0.1, prediction.time.optimizer = 0.001;
  EXPECT_EQ(whatBinds(prediction),
            "compute is 65.0 % of the step, bubble 20.0 %, tensor parallel communication 9.0 %, data parallel "
            "communication 3.0 %, context parallel communication 2.0 %, pipeline communication 1.0 %; memory is 50.0 % "
            "full (1 B of 2 B)");
}

TEST(Explain, TraceHasEveryAction) {
  Plan plan;
  plan.dp = 4, plan.tp = 2, plan.pp = 2, plan.microBatchSize = 4, plan.microBatches = 8;
  ASSERT_EQ(violations(problem(), plan), std::vector<std::string>{});
  std::string text = traceJson(problem(), plan);
  size_t events = 0;
  for (size_t at = text.find("\"ph\":\"X\""); at != std::string::npos; at = text.find("\"ph\":\"X\"", at + 1))
    ++events;
  EXPECT_EQ(events, 2u * 8 * 2 + 2);
  EXPECT_THAT(text, HasSubstr("\"pid\":1,\"tid\":1,\"name\":\"thread_name\",\"args\":{\"name\":\"once per step\"}"));
}

// Perfetto drops slices of a track that overlap, even by a nanosecond.
TEST(Explain, SlicesOfATrackDoNotOverlap) {
  Plan plan;
  plan.dp = 2, plan.tp = 2, plan.pp = 4, plan.microBatchSize = 1, plan.microBatches = 64;
  ASSERT_EQ(violations(problem(), plan), std::vector<std::string>{});
  std::istringstream lines(traceJson(problem(), plan));
  std::map<std::pair<int, int>, int64_t> ends;
  int slices = 0;
  for (std::string line; std::getline(lines, line);) {
    int stage = 0, track = 0;
    char name[32] = {};
    int64_t start = 0, startRest = 0, duration = 0, durationRest = 0;
    if (std::sscanf(line.c_str(),
                    "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"%31[^\"]\",\"ts\":%" SCNd64 ".%" SCNd64
                    ",\"dur\":%" SCNd64 ".%" SCNd64 ",",
                    &stage, &track, name, &start, &startRest, &duration, &durationRest) != 7)
      continue;
    ++slices;
    int64_t &end = ends[{stage, track}];
    EXPECT_GE(1000 * start + startRest, end) << line;
    end = 1000 * (start + duration) + startRest + durationRest;
  }
  EXPECT_EQ(slices, 4 * 64 * 2 + 4);
}

// Only if there are inputs to slice: kept under full recompute and not already split by sequence parallelism.
TEST(DescribePlan, NamesSlicedInputs) {
  Plan plan;
  plan.tp = 2;
  plan.stages = {{0, 2, {Recompute::Full, Recompute::Full}}};
  plan.sliceRecomputedInputs = true;
  EXPECT_THAT(describePlan(plan), HasSubstr("full recompute in 2 of 2 layers, its inputs sliced over tp"));
  plan.sequenceParallel = true;
  EXPECT_THAT(describePlan(plan), testing::Not(HasSubstr("sliced")));
  plan.sequenceParallel = false;
  plan.stages[0].recompute = {Recompute::None, Recompute::None};
  EXPECT_THAT(describePlan(plan), testing::Not(HasSubstr("sliced")));
}
