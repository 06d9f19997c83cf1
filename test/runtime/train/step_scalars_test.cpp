// Tests clipping, skipped steps, the loss scale, learning rates and initial values at known points.
#include "runtime/train/step_scalars.h"

#include "format/abi.h"
#include "runtime/kernels/update_scalars.h"
#include "runtime/status.h"
#include "runtime/train/batch_ramp.h"
#include "runtime/train/initial_value.h"
#include "runtime/train/learning_rate.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <numbers>
#include <tuple>
#include <vector>

namespace espalier::rt {
namespace {

pb::LearningRate rate(const std::string &kind) {
  pb::LearningRate schedule;
  schedule.set_kind(kind);
  schedule.set_peak(1.0);
  schedule.set_end(0.1);
  schedule.set_warmup_init(0.2);
  schedule.set_power(2);
  schedule.set_cycles(0.5);
  schedule.set_warmup_steps(10);
  schedule.set_total_steps(110);
  return schedule;
}

TEST(LearningRate, AScheduleThatIsAlwaysZeroIsRefused) {
  auto settings = [](int64_t warmup, int64_t total, double end) {
    pb::Settings settings;
    pb::LearningRate &schedule = *settings.mutable_learning_rate();
    schedule.set_kind("linear");
    schedule.set_peak(1);
    schedule.set_end(end);
    schedule.set_warmup_steps(warmup);
    schedule.set_total_steps(total);
    return settings;
  };
  EXPECT_THROW(requireLearning(settings(5, -1, 0), 1), PlanError);
  EXPECT_THROW(requireLearning(settings(1, 1, 0), 3), PlanError); // later steps are behind the end
  EXPECT_NO_THROW(requireLearning(settings(1, 1, 0.1), 3));
  EXPECT_NO_THROW(requireLearning(settings(5, -1, 0), 2));
  EXPECT_NO_THROW(requireLearning(settings(0, -1, 0), 1));
  EXPECT_NO_THROW(requireLearning(settings(5, 100, 0), 1)); // a part of the schedule
  pb::Settings grouped = settings(5, -1, 0);
  *grouped.add_rate_groups() = rate("constant");
  grouped.mutable_rate_groups(0)->set_warmup_steps(0);
  EXPECT_NO_THROW(requireLearning(grouped, 1));
}

TEST(LearningRate, WarmsUpLinearly) {
  EXPECT_DOUBLE_EQ(learningRate(rate("cosine"), 0, 0), 0.2);
  EXPECT_DOUBLE_EQ(learningRate(rate("cosine"), 5, 0), 0.6);
  EXPECT_DOUBLE_EQ(learningRate(rate("cosine"), 10, 0), 1.0);
}

TEST(LearningRate, DecaysByKind) {
  EXPECT_DOUBLE_EQ(learningRate(rate("constant"), 60, 0), 1.0);
  EXPECT_DOUBLE_EQ(learningRate(rate("linear"), 60, 0), 0.55);
  EXPECT_DOUBLE_EQ(learningRate(rate("cosine"), 60, 0), 0.55);
  EXPECT_DOUBLE_EQ(learningRate(rate("cosine"), 35, 0), 0.1 + 0.9 * 0.5 * (1 + std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(learningRate(rate("polynomial"), 60, 0), 0.1 + 0.9 * 0.25);
  EXPECT_DOUBLE_EQ(learningRate(rate("inverse_sqrt"), 40, 0), 0.5);
}

TEST(LearningRate, StaysAtTheEndAfterTheLastStep) {
  for (const char *kind : {"linear", "cosine", "polynomial"})
    EXPECT_DOUBLE_EQ(learningRate(rate(kind), 5000, 0), 0.1) << kind;
}

TEST(LearningRate, WarmupStableDecayFallsOnlyAtTheEnd) {
  pb::LearningRate schedule = rate("wsd");
  schedule.set_decay_steps(20);
  EXPECT_DOUBLE_EQ(learningRate(schedule, 89, 0), 1.0);
  EXPECT_DOUBLE_EQ(learningRate(schedule, 100, 0), 0.1 + 0.9 * (2 * std::sqrt(0.5) - 1));
  EXPECT_DOUBLE_EQ(learningRate(schedule, 110, 0), 0.1);
}

TEST(LearningRate, UsesTheStepsOfTheRunWithoutATotal) {
  pb::LearningRate schedule = rate("linear");
  schedule.set_total_steps(-1);
  schedule.set_warmup_ratio(0.1);
  EXPECT_DOUBLE_EQ(learningRate(schedule, 10, 100), 1.0);
  EXPECT_DOUBLE_EQ(learningRate(schedule, 55, 100), 0.55);
}

TEST(LearningRate, RefusesUnknownKinds) { EXPECT_THROW(learningRate(rate("sawtooth"), 50, 100), PlanError); }

/// 10 tokens at scale 4 and a raw norm of 120 give a normalised norm of 3.
TEST(UpdateScalars, ClipsTheNormalisedNorm) {
  EXPECT_FLOAT_EQ(updateScalars(0, 50, 10, 120 * 120, 4).gradientScale, 1.0f / 40);
  EXPECT_NEAR(updateScalars(1.5, 50, 10, 120 * 120, 4).gradientScale, 0.5 / 40, 1e-6);
  EXPECT_EQ(updateScalars(1.5, 50, 10, 120 * 120, 4).apply, 1);
  EXPECT_FLOAT_EQ(updateScalars(100, 50, 10, 120 * 120, 4).gradientScale, 1.0f / 40);
}

TEST(UpdateScalars, SkipsNormsAboveTheLimit) {
  EXPECT_EQ(updateScalars(0, 50, 10, 120 * 120, 4, /*normLimit=*/2.5f).apply, 0);
  EXPECT_EQ(updateScalars(0, 50, 10, 120 * 120, 4, 2.5f).gradientScale, 0);
  EXPECT_EQ(updateScalars(0, 50, 10, 120 * 120, 4, 3).apply, 1);
  EXPECT_EQ(updateScalars(0, 50, 10, 120 * 120, 4, 0).apply, 1);
}

TEST(UpdateScalars, SkipsWhatIsNotFinite) {
  float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (auto [loss, tokens, squares] :
       {std::tuple(infinity, 10.0f, 1.0f), {1, 10, infinity}, {nan, 10, 1}, {1, 10, nan}, {0, 0, 0}}) {
    ScalarUpdate update = updateScalars(0, loss, tokens, squares, 1);
    EXPECT_EQ(update.apply, 0);
    EXPECT_EQ(update.gradientScale, 0);
  }
}

/// Returns the results of a step: its sums, and the output of UPDATE_SCALARS.
Scalars results(float loss, float tokens, float squares, double scale, float normLimit = 0) {
  Scalars scalars{};
  scalars[NormLimit] = normLimit;
  scalars[LossSum] = loss;
  scalars[TokenCount] = tokens;
  scalars[SquaredNorm] = squares;
  scalars[LossScale] = static_cast<float>(scale);
  ScalarUpdate update = updateScalars(/*maxGradNorm=*/0, loss, tokens, squares, scalars[LossScale], normLimit);
  scalars[GradientScale] = update.gradientScale;
  scalars[Apply] = update.apply;
  return scalars;
}

pb::Settings dynamic() {
  pb::Settings settings;
  settings.set_dynamic_loss_scale(true);
  settings.set_initial_loss_scale(1024);
  settings.set_loss_scale_factor(2);
  settings.set_loss_scale_window(3);
  settings.set_minimum_loss_scale(256);
  settings.set_global_batch(8);
  settings.set_beta1(0.9);
  settings.set_beta2(0.99);
  return settings;
}

TEST(EndStep, RaisesTheScaleAfterCleanStepsAndLowersItAfterAnOverflow) {
  pb::Settings settings = dynamic();
  ScalarState state = initialScalars(settings);
  auto step = [&](bool overflows) {
    float squares = overflows ? std::numeric_limits<float>::infinity() : 1;
    endStep(settings, results(1, 10, squares, state.lossScale), state, 8);
    return state.lossScale;
  };
  EXPECT_EQ(step(false), 1024);
  EXPECT_EQ(step(false), 1024);
  EXPECT_EQ(step(false), 2048);
  EXPECT_EQ(step(false), 2048);
  EXPECT_EQ(step(true), 1024); // also resets the count of clean steps
  EXPECT_EQ(step(false), 1024);
  EXPECT_EQ(step(false), 1024);
  EXPECT_EQ(step(false), 2048);
  for (int i = 0; i < 9; ++i)
    step(true);
  EXPECT_EQ(state.lossScale, 256);
  EXPECT_EQ(state.step, 17);
  EXPECT_EQ(state.updates, 7); // skipped steps do not advance the bias corrections
  EXPECT_EQ(state.consumed, 17 * 8);
}

/// A batch whose labels are all masked does not change the scale and makes no update.
TEST(EndStep, WithoutLabelsIsNoOverflow) {
  pb::Settings settings = dynamic();
  ScalarState state = initialScalars(settings);
  for (int i = 0; i < 2; ++i)
    endStep(settings, results(1, 10, 1, state.lossScale), state, 8);
  for (int i = 0; i < 5; ++i) {
    StepOutcome outcome = endStep(settings, results(0, 0, 0, state.lossScale), state, 8);
    EXPECT_FALSE(outcome.hasLabels());
    EXPECT_FALSE(outcome.isApplied);
    EXPECT_TRUE(std::isnan(outcome.loss)); // the mean over zero tokens is undefined
  }
  EXPECT_EQ(state.lossScale, 1024);
  EXPECT_EQ(state.updates, 2);
  EXPECT_EQ(state.cleanSteps, 2u);
  EXPECT_EQ(state.consumed, 7 * 8);
}

TEST(BeginStep, CorrectsTheBiasOfAppliedSteps) {
  pb::Settings settings = dynamic();
  ScalarState state = initialScalars(settings);
  state.step = 10;
  state.updates = 1;
  Scalars scalars = beginStep(settings, state, 100);
  EXPECT_FLOAT_EQ(scalars[BiasCorrection1], 1 / (1 - 0.81f));
  EXPECT_NEAR(scalars[BiasCorrection2], 1 / (1 - 0.99 * 0.99), 1e-4);
  EXPECT_EQ(scalars[LossSum], 0);
  EXPECT_EQ(scalars[LossScale], 1024);
  EXPECT_EQ(std::bit_cast<uint32_t>(scalars[Step]), 10u); // the scalar has the bits of an integer
}

/// A scale is meant for the mean of a sample's losses. The factor is a power of two.
TEST(BeginStep, ScalesTheMeanLossOfASample) {
  pb::Settings settings = dynamic();
  auto atSequence = [&](uint64_t sequence) {
    settings.set_sequence(sequence);
    return beginStep(settings, initialScalars(settings), 100)[LossScale];
  };
  EXPECT_EQ(atSequence(1), 1024);
  EXPECT_EQ(atSequence(512), 2);
  EXPECT_EQ(atSequence(1000), 2);
  EXPECT_EQ(atSequence(8192), 0.125);
  settings.set_initial_loss_scale(1); // not scaled
  EXPECT_EQ(atSequence(512), 1);
}

/// As in Megatron and MindFormers, a skipped step does not advance the warmup.
TEST(BeginStep, TheLearningRateFollowsAppliedSteps) {
  pb::Settings settings = dynamic();
  *settings.mutable_learning_rate() = rate("cosine");
  ScalarState state = initialScalars(settings);
  auto step = [&](bool overflows) {
    float squares = overflows ? std::numeric_limits<float>::infinity() : 1;
    float taken = beginStep(settings, state, 110)[LearningRate];
    endStep(settings, results(1, 10, squares, state.lossScale), state, 8);
    return taken;
  };
  EXPECT_FLOAT_EQ(step(true), 0.2);
  EXPECT_FLOAT_EQ(step(true), 0.2);
  EXPECT_FLOAT_EQ(step(false), 0.2);
  EXPECT_FLOAT_EQ(step(true), 0.28);
  EXPECT_FLOAT_EQ(step(false), 0.28);
  EXPECT_FLOAT_EQ(step(false), 0.36);
  EXPECT_EQ(state.step, 6);
}

/// Under a ramp of the batch size, each kind of schedule has at each step the rate that it has without the ramp.
TEST(BeginStep, TheLearningRateCountsStepsOfAnyBatch) {
  for (const char *kind : {"constant", "linear", "cosine", "polynomial", "inverse_sqrt", "wsd"}) {
    pb::Settings settings = dynamic();
    pb::LearningRate &schedule = *settings.mutable_learning_rate();
    schedule = rate(kind);
    schedule.set_decay_steps(20);
    *settings.add_rate_groups() = schedule;
    pb::BatchStep &small = *settings.add_batch_ramp();
    small.set_samples(100);
    small.set_global_batch(2);
    ScalarState state = initialScalars(settings);
    for (int64_t step = 0; step < 110; ++step) {
      Scalars scalars = beginStep(settings, state, 110);
      ASSERT_EQ(scalars[LearningRate], static_cast<float>(learningRate(schedule, step, 110))) << kind << " " << step;
      ASSERT_EQ(scalars[LearningRate], scalars[GroupRate]) << kind << " " << step;
      endStep(settings, results(1, 10, 1, state.lossScale), state, step < 50 ? 2 : 8);
    }
    EXPECT_EQ(state.updates, 110) << kind;
  }
}

/// 10 tokens at scale 4 and a raw norm of 120 give a normalised norm of 3, even if the gradient was clipped.
TEST(EndStep, ReportsTheNormOfTheMeanLoss) {
  ScalarState state;
  StepOutcome outcome = endStep({}, results(50, 10, 120 * 120, 4), state, 8);
  EXPECT_FLOAT_EQ(outcome.gradNorm, 3);
  EXPECT_FLOAT_EQ(outcome.loss, 5);
  EXPECT_TRUE(outcome.isApplied);
}

TEST(BeginEvaluation, ScalesNoLoss) {
  Scalars scalars = beginEvaluation(7);
  EXPECT_EQ(scalars[LossScale], 1);
  EXPECT_EQ(scalars[TokenCount], 0);
  EXPECT_EQ(std::bit_cast<uint32_t>(scalars[Step]), 7u);
}

/// The series agree with the C library. The error of a logarithm near 0 is relative to 1, as that of 1 - u is.
TEST(InitialValue, HasTheFunctionsOfTheLibrary) {
  for (uint64_t i = 0; i < 100000; ++i) {
    uint32_t word = randomBits(1, 0, 0, 0, i);
    double u = (word + 1.0) * 0x1p-32, angle = 2 * std::numbers::pi * word * 0x1p-32;
    EXPECT_NEAR(logarithm(u), std::log(u), 4 * 0x1p-52 * std::max(1.0, -std::log(u))) << word;
    EXPECT_NEAR(circlePoint(word).even, std::cos(angle), 6 * 0x1p-52) << word; // 2 pi and the angle are rounded, 4 of 6
    EXPECT_NEAR(circlePoint(word).odd, std::sin(angle), 6 * 0x1p-52) << word;
  }
  EXPECT_EQ(logarithm(1), 0);
  EXPECT_EQ(circlePoint(1U << 31).even, -1);
  EXPECT_EQ(circlePoint(3U << 30).odd, -1);
}

TEST(InitialValue, IsNormalAndKeyedByName) {
  double sum = 0, squares = 0, cubes = 0;
  int64_t n = 200000;
  for (int64_t i = 0; i < n; ++i) {
    double z = initialNormal(initialKey(1, "block.0.weight"), i);
    sum += z;
    squares += z * z;
    cubes += z * z * z;
  }
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(squares / n, 1, 0.01);
  EXPECT_NEAR(cubes / n, 0, 0.03);
  auto first = [](uint64_t seed, const char *name) {
    return initialValue(seed, name, pb::Initialization::NORMAL, 1, 0);
  };
  EXPECT_NE(first(1, "a"), first(1, "b"));
  EXPECT_NE(first(1, "a"), first(2, "a"));
  EXPECT_EQ(initialValue(1, "a", pb::Initialization::ONES, 0, 5), 1);
  EXPECT_EQ(initialValue(1, "a", pb::Initialization::ZEROS, 0, 5), 0);
}

/// Batches of 4 samples until 8, of 8 until 20, then of 16.
TEST(BatchRamp, FollowsTheSamples) {
  pb::Settings settings;
  settings.set_global_batch(16);
  for (auto [end, batch, entry] : {std::tuple(8, 4, 2), {20, 8, 3}}) {
    pb::BatchStep &step = *settings.add_batch_ramp();
    step.set_samples(end);
    step.set_global_batch(batch);
    step.set_entry(entry);
  }
  int64_t consumed = 0, steps = 0;
  for (auto [entry, samples] : {std::pair(2u, 4), {2u, 4}, {3u, 8}, {3u, 8}, {0u, 16}, {0u, 16}}) {
    EXPECT_EQ(samplesOf(settings, steps++), consumed);
    StepBatch batch = batchAfter(settings, consumed, /*entry=*/0);
    EXPECT_EQ(batch.entry, entry) << consumed;
    EXPECT_EQ(batch.samples, samples) << consumed;
    consumed += batch.samples;
  }
}

/// Steps of norm n = sqrt(squares) / 10, with a limit of 3 times the median of up to four norms.
TEST(NormLimit, FollowsTheMedianOfAppliedSteps) {
  pb::Settings settings;
  settings.set_skip_spike_factor(3);
  settings.set_skip_spike_window(4);
  ScalarState state = initialScalars(settings);
  auto step = [&](float norm) {
    float limit = beginStep(settings, state, 100)[NormLimit];
    return endStep(settings, results(1, 10, norm * norm * 100, 1, limit), state, 8);
  };
  EXPECT_EQ(step(1).normLimit, 0);
  EXPECT_EQ(step(50).normLimit, 0); // one norm is no half of the window
  EXPECT_EQ(normLimit(settings, state), 3 * 25.5f);
  EXPECT_TRUE(step(2).isApplied);
  EXPECT_TRUE(step(4).isApplied);
  EXPECT_EQ(normLimit(settings, state), 9.0f); // of 1 2 4 50
  StepOutcome spike = step(10);
  EXPECT_TRUE(spike.isSpike);
  EXPECT_FALSE(spike.isApplied);
  EXPECT_EQ(normLimit(settings, state), 9.0f);
  EXPECT_EQ(state.updates, 4);
  EXPECT_EQ(state.step, 5);
  EXPECT_TRUE(step(6).isApplied); // drops the 1
  EXPECT_EQ(state.norms.size(), 4u);
  EXPECT_EQ(normLimit(settings, state), 15.0f);
}

TEST(NormLimit, KeepsOverflowsOutOfTheNorms) {
  pb::Settings settings = dynamic();
  settings.set_skip_spike_factor(3);
  settings.set_skip_spike_window(2);
  ScalarState state = initialScalars(settings);
  endStep(settings, results(1, 10, std::numeric_limits<float>::infinity(), state.lossScale), state, 8);
  EXPECT_TRUE(state.norms.empty());
  EXPECT_EQ(state.lossScale, 512);
  endStep(settings, results(1, 10, 1, state.lossScale), state, 8);
  uint64_t clean = state.cleanSteps;
  StepOutcome spike = endStep(settings, results(1, 10, 1e6f, state.lossScale, 1e-3f), state, 8);
  EXPECT_TRUE(spike.isSpike);
  EXPECT_EQ(state.lossScale, 512);
  EXPECT_EQ(state.cleanSteps, clean + 1);
}

} // namespace
} // namespace espalier::rt
