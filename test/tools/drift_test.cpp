// The comparison of a run with the prediction that its plan holds.
#include "tools/drift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

using testing::HasSubstr;
using testing::Not;

rt::pb::Plan planOf(double predictedSeconds) {
  rt::pb::Plan plan;
  plan.set_target("cpu");
  plan.set_predicted_step_seconds(predictedSeconds);
  plan.add_stages()->add_arena_bytes(2 << 20);
  return plan;
}

rt::RunResult runOf(std::initializer_list<double> seconds, uint64_t bytes = (2 << 20) + (1 << 18)) {
  rt::RunResult result;
  for (double one : seconds)
    result.steps.push_back({.seconds = one, .peakBytes = bytes});
  return result;
}

TEST(Drift, MedianLeavesOutTheFirstStep) {
  EXPECT_EQ(medianSeconds(runOf({9, 1, 2, 3}).steps), 2);
  EXPECT_EQ(medianSeconds(runOf({9}).steps), 9);
  EXPECT_EQ(medianSeconds({}), 0);
}

TEST(Drift, SmallOnesHaveNoCause) {
  EXPECT_EQ(driftLine(planOf(1), runOf({9, 1.1, 1.1, 1.1}), {}),
            "predicted 1 s a step, measured 1.1 s (+10 %); memory 2.00 MB planned, 2.25 MB used (+12 %)");
}

TEST(Drift, OfMoreThanFifteenPercentNamesItsLikelyCause) {
  EXPECT_THAT(driftLine(planOf(1), runOf({2, 2, 2, 2}), {.ranks = 8, .cores = 2}),
              HasSubstr("(+100 %); memory 2.00 MB planned, 2.25 MB used (+12 %); likely cause: 8 ranks share 2 cores"));
  EXPECT_THAT(driftLine(planOf(1), runOf({2, 2, 2, 2, 2, 2, 2, 2, 2, 9, 9}), {.ranks = 1, .cores = 2}),
              HasSubstr("likely cause: steps vary"));
  EXPECT_THAT(
      driftLine(planOf(1), runOf({0.5, 0.5, 0.5}), {.ranks = 8, .cores = 2}),
      HasSubstr("(-50 %); memory 2.00 MB planned, 2.25 MB used (+12 %); likely cause: the cluster file does not"));
}

TEST(Drift, OfMemoryIsNamed) {
  EXPECT_EQ(
      driftLine(planOf(1), runOf({1, 1, 1}, 3 << 20), {}),
      "predicted 1 s a step, measured 1 s (+0 %); memory 2.00 MB planned, 3.00 MB used (+50 %); 1.00 MB of memory "
      "are workspace of library calls and host buffers, which grow less than a model");
}

TEST(Drift, NothingIsSaidWithoutPredictionOrSteps) {
  EXPECT_EQ(driftLine(planOf(0), runOf({1, 1, 1}), {}), "");
  EXPECT_EQ(driftLine(planOf(1), runOf({1, 1}), {}), "");
}

} // namespace
} // namespace espalier
