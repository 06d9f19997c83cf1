// The conditions under which a run is stopped as diverged.
#include "runtime/train/divergence.h"

#include <gmock/gmock.h>
#include <limits>

namespace espalier::rt {
namespace {

using testing::HasSubstr;

/// A sequence of steps under one rule.
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

TEST(DivergenceRule, CountsOnlyConsecutiveSkippedSteps) {
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

TEST(DivergenceRule, ARunThatEndsWithSkippedStepsHasNotSucceeded) {
  Steps steps(most(0));
  EXPECT_EQ(steps.rule.judgeEnd(steps.state), "");
  steps.add(std::numeric_limits<double>::quiet_NaN(), false, /*tokens=*/0); // no labels
  EXPECT_EQ(steps.rule.judgeEnd(steps.state), "");
  steps.add(5, false);
  EXPECT_THAT(steps.rule.judgeEnd(steps.state),
              HasSubstr("the run ends with 1 step skipped in a row, up to step 2: their gradients are not finite"));
  steps.add(5, true);
  steps.state.updates = 1;
  for (uint64_t skipped = 0; skipped < DivergenceRule::mostAtEnd; ++skipped) {
    EXPECT_EQ(steps.rule.judgeEnd(steps.state), "");
    steps.add(5, false);
  }
  EXPECT_THAT(steps.rule.judgeEnd(steps.state), HasSubstr("the run ends with 5 steps skipped in a row, up to step 8"));
  steps.add(5, true);
  EXPECT_EQ(steps.rule.judgeEnd(steps.state), "");
}

TEST(DivergenceRule, NamesSpikesOfTheNorm) {
  pb::Settings settings = most(2);
  settings.set_skip_spike_factor(4);
  DivergenceRule rule(settings);
  StepOutcome spike{.loss = 5, .tokens = 10, .isApplied = false, .isSpike = true},
      overflow{.loss = 5, .tokens = 10, .isApplied = false};
  EXPECT_EQ(rule.judge(spike, {.step = 7}), "");
  EXPECT_EQ(rule.judge(spike, {.step = 8}),
            "2 steps in a row were skipped, up to step 8: their gradient norms are above the limit "
            "(runner_wrapper.skip_spike_factor is 4, runner_wrapper.max_skipped_steps is 2)");
  EXPECT_EQ(rule.judgeEnd({.step = 8}), ""); // the run was told to skip them
  rule.restart();
  EXPECT_EQ(rule.judge(spike, {.step = 7}), "");
  EXPECT_THAT(rule.judge(overflow, {.step = 8}),
              HasSubstr("their gradients are not finite, or their norms are above the limit of"));
}

TEST(DivergenceRule, IgnoresStepsWithoutLabels) {
  Steps steps(most(2));
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(steps.add(std::numeric_limits<double>::quiet_NaN(), false, /*tokens=*/0), "");
  EXPECT_EQ(steps.add(5, false), "");
  EXPECT_EQ(steps.add(std::numeric_limits<double>::quiet_NaN(), false, /*tokens=*/0), "");
  EXPECT_NE(steps.add(5, false), ""); // the second consecutive step that counts
}

TEST(DivergenceRule, TheDefaultLimitIsTwenty) {
  Steps silent{pb::Settings()}, never(most(0));
  for (int i = 0; i < 19; ++i)
    EXPECT_EQ(silent.add(5, false), "") << i;
  EXPECT_NE(silent.add(5, false), "");
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(never.add(5, false), "") << i;
}

/// Megatron's loss scale for float16: it starts at 2^32 and halves with each overflow.
pb::Settings halvingScale() {
  pb::Settings settings = most(20);
  settings.set_dynamic_loss_scale(true);
  settings.set_initial_loss_scale(0x1p32);
  settings.set_loss_scale_factor(2);
  settings.set_minimum_loss_scale(1);
  return settings;
}

/// A float16 run: endStep updates the scale.
struct Float16Run {
  std::string add(bool isApplied) {
    Scalars scalars{};
    scalars[LossSum] = 50;
    scalars[TokenCount] = 10;
    scalars[Apply] = isApplied;
    StepOutcome outcome = endStep(settings, scalars, state, 8);
    return rule.judge(outcome, state);
  }

  const pb::Settings settings = halvingScale();
  DivergenceRule rule{settings};
  ScalarState state = initialScalars(settings);
};

TEST(DivergenceRule, IgnoresTheInitialFallOfTheScale) {
  Float16Run run;
  for (int step = 1; step <= 31; ++step)
    EXPECT_EQ(run.add(false), "") << step;
  EXPECT_EQ(run.state.lossScale, 2);
  EXPECT_EQ(run.rule.skipped(), 31u); // a due checkpoint waits
  EXPECT_EQ(run.add(true), "");
  EXPECT_EQ(run.rule.skipped(), 0u);
}

TEST(DivergenceRule, StepsAtTheLowestScaleCount) {
  Float16Run run;
  for (int step = 1; step <= 50; ++step)
    EXPECT_EQ(run.add(false), "") << step; // step 32 reaches the minimum and is the first that counts
  EXPECT_THAT(run.add(false),
              HasSubstr("51 steps in a row were skipped, up to step 51: their gradients are not finite "
                        "(runner_wrapper.scale_sense.loss_scale_value is 4.29497e+09, the loss scale is 1, "
                        "runner_wrapper.max_skipped_steps is 20)"));
}

TEST(DivergenceRule, AfterAnAppliedStepEachSkippedStepCounts) {
  Float16Run run;
  EXPECT_EQ(run.add(true), "");
  for (int step = 1; step <= 19; ++step)
    EXPECT_EQ(run.add(false), "") << step;
  EXPECT_THAT(run.add(false), HasSubstr("20 steps in a row were skipped, up to step 21"));
}

TEST(DivergenceAdvice, NamesTheLikelyCause) {
  pb::Settings fixed, dynamic;
  dynamic.set_dynamic_loss_scale(true);
  dynamic.set_minimum_loss_scale(1);
  EXPECT_THAT(divergenceAdvice(dynamic, /*isEverApplied=*/true, 1024), HasSubstr("lr_schedule.learning_rate"));
  EXPECT_THAT(divergenceAdvice(dynamic, /*isEverApplied=*/false, 1024),
              HasSubstr("a lower runner_wrapper.scale_sense.loss_scale_value may help"));
  EXPECT_THAT(divergenceAdvice(fixed, /*isEverApplied=*/false, 1024),
              HasSubstr("a lower runner_wrapper.scale_sense may help"));
  EXPECT_THAT(divergenceAdvice(dynamic, /*isEverApplied=*/false, 1), HasSubstr("compute_dtype"));
}

} // namespace
} // namespace espalier::rt
