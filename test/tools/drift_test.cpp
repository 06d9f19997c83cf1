// The comparison of a run with the prediction that its plan holds.
#include "tools/report/drift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

using testing::HasSubstr;

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

/// Returns the site of a run with calibrated rates and 2 MB planned.
RunSite calibrated(int ranks = 1, int cores = 1) { return {ranks, cores, /*isCalibrated=*/true, 2 << 20}; }

TEST(Drift, SmallOnesHaveNoCause) {
  EXPECT_EQ(driftLine(planOf(1), runOf({9, 1.1, 1.1, 1.1}), calibrated()),
            "predicted 1 s a step, measured 1.1 s (+10 %); memory 2.00 MB planned, 2.25 MB used (+12 %)");
}

TEST(Drift, OfMoreThanFifteenPercentNamesItsLikelyCause) {
  EXPECT_THAT(driftLine(planOf(1), runOf({2, 2, 2, 2}), calibrated(8, 2)),
              HasSubstr("(+100 %); memory 2.00 MB planned, 2.25 MB used (+12 %); likely cause: 8 ranks share 2 cores"));
  EXPECT_THAT(driftLine(planOf(1), runOf({2, 2, 2, 2, 2, 2, 2, 2, 2, 9, 9}), calibrated(1, 2)),
              HasSubstr("likely cause: steps vary"));
  EXPECT_THAT(driftLine(planOf(1), runOf({0.5, 0.5, 0.5}), calibrated(8, 2)),
              HasSubstr("(-50 %); memory 2.00 MB planned, 2.25 MB used (+12 %); likely cause: this machine has other"));
}

TEST(Drift, OfRatesThatWereNotMeasuredHereIsNone) {
  RunSite site = calibrated();
  site.isCalibrated = false;
  EXPECT_EQ(driftLine(planOf(1), runOf({90, 90, 90}), site),
            "measured 90 s a step; not calibrated: the predicted 1 s are for rates that were not measured on this "
            "machine, which `espalier calibrate` does; memory 2.00 MB planned, 2.25 MB used (+12 %)");
}

TEST(Drift, NothingIsSaidWithoutPredictionOrSteps) {
  EXPECT_EQ(driftLine(planOf(0), runOf({1, 1, 1}), {}), "");
  EXPECT_EQ(driftLine(planOf(1), runOf({1, 1}), {}), "");
}

} // namespace
} // namespace espalier
