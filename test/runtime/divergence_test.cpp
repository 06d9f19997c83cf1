// When a run is given up.
#include "runtime/train/divergence.h"

#include <gmock/gmock.h>
#include <limits>

namespace espalier::rt {
namespace {

using testing::HasSubstr;

/// A run of steps under one rule.
struct Steps {
  explicit Steps(const pb::Settings &settings) : rule(settings) {}

  std::string add(double loss, bool isApplied, double tokens = 10) {
    ++state.step;
    return rule.judge({.loss = loss, .tokens = tokens, .isApplied = isApplied}, state);
  }

  DivergenceRule rule;
  ScalarState state;
};

pb::Settings most(uint64_t skipped) {
  pb::Settings settings;
  settings.set_max_skipped_steps(skipped);
  return settings;
}

TEST(DivergenceRule, ALossThatIsNotFiniteEndsTheRunAtOnce) {
  for (double loss : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Steps steps(most(0));
    EXPECT_EQ(steps.add(5, true), "");
    EXPECT_EQ(steps.add(loss, false), "the loss of step 2 is not finite");
  }
}

TEST(DivergenceRule, SkippedStepsCountInARowOnly) {
  Steps steps(most(3));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(steps.add(5, false), "");
    EXPECT_EQ(steps.add(5, false), "");
    EXPECT_EQ(steps.rule.skipped(), 2u);
    EXPECT_EQ(steps.add(5, true), "");
    EXPECT_EQ(steps.rule.skipped(), 0u);
  }
  steps.add(5, false);
  steps.add(5, false);
  EXPECT_THAT(steps.add(5, false), HasSubstr("3 steps in a row were skipped, up to step 18"));
}

TEST(DivergenceRule, StepsWithoutLabelsCountForNothing) {
  Steps steps(most(2));
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(steps.add(std::numeric_limits<double>::quiet_NaN(), false, /*tokens=*/0), "");
  EXPECT_EQ(steps.add(5, false), "");
  EXPECT_EQ(steps.add(std::numeric_limits<double>::quiet_NaN(), false, /*tokens=*/0), "");
  EXPECT_NE(steps.add(5, false), ""); // the second in a row of those that count
}

TEST(DivergenceRule, TwentyUnlessThePlanSaysOtherwise) {
  Steps silent{pb::Settings()}, never(most(0));
  for (int i = 0; i < 19; ++i)
    EXPECT_EQ(silent.add(5, false), "") << i;
  EXPECT_NE(silent.add(5, false), "");
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(never.add(5, false), "") << i;
}

} // namespace
} // namespace espalier::rt
